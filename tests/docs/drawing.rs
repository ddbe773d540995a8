//! Charts of the offered and admitted requests over a minute, as SVG with a light and a dark color
//! scheme.

use std::fmt::Write as _;

/// The requests of a minute, in microseconds from its start, and the subset that was admitted.
pub(super) struct Course {
    pub(super) name: String,
    pub(super) offered: Vec<u64>,
    pub(super) admitted: Vec<u64>,
}

/// Requests permitted in `PERIOD_S` seconds.
const LIMIT: u64 = 100;
const PERIOD_S: u64 = 10;
/// Length of the traffic in seconds.
const LENGTH_S: u64 = 60;
/// Width of a second, and x coordinate of the first.
const SECOND: u64 = 11;
const LEFT: u64 = 52;
const WIDTH: u64 = LEFT + LENGTH_S * SECOND + 28;

const STYLE: &str = "
  .card { fill: #ffffff; stroke: #d8dce2 } text { font: 12px system-ui, sans-serif; fill: #3a414b } .strong { font-weight: 600 }
  .grid { stroke: #e4e7ec } .offered { fill: #cfd5dd } .admitted { fill: #2f6fde } .line { fill: none; stroke-width: 1.8 }
  .l0 { stroke: #2f6fde } .l1 { stroke: #d1495b; stroke-width: 4 } .l2 { stroke: #2a9d6f } .l3 { stroke: #c77d0a } .l4 { stroke: #8b5fbf } .l5 { stroke: #6b7280 }
  .over { fill: #d1495b; opacity: 0.35 } .limit { stroke: #3a414b; stroke-dasharray: 4 3 }
  @media (prefers-color-scheme: dark) {
    .card { fill: #1b1f27; stroke: #353c49 } text { fill: #c9d1dc } .grid { stroke: #2c323d } .offered { fill: #434b59 }
    .admitted { fill: #6ea0ff } .l0 { stroke: #6ea0ff } .l1 { stroke: #ff8291 } .l2 { stroke: #5fd0a2 } .l3 { stroke: #f0b04a }
    .l4 { stroke: #c3a1f0 } .l5 { stroke: #9aa3b2 } .over { fill: #ff8291 } .limit { stroke: #c9d1dc }
  }
";

/// Draws the requests that one algorithm admits: per second, and in the ten seconds before each
/// instant.
pub(super) fn course(of: &Course) -> String {
    let most =
        of.admitted.iter().map(|at| in_period_until(&of.admitted, *at)).max().unwrap_or_default();
    let title = format!(
        "{}: {} of {} admitted, at most {most} in any {PERIOD_S} s",
        of.name.replace('_', " "),
        of.admitted.len(),
        of.offered.len()
    );
    let seconds_panel = Panel { top: 58, height: 100, most: 100 };
    let period_panel = Panel { top: 194, height: 80, most: 200 };
    let mut body = each_second(of, &seconds_panel) + &in_each_period(of, &period_panel);
    seconds(&mut body, period_panel.bottom());
    picture(&title, 310, &body)
}

/// Draws a bar per second for the offered requests, and in front of it one for the admitted.
fn each_second(of: &Course, panel: &Panel) -> String {
    let mut body = String::new();
    panel.draw(&mut body, "requests a second: offered and admitted", &[0, 50, 100]);
    for second in 0..LENGTH_S {
        for (class, times) in [("offered", &of.offered), ("admitted", &of.admitted)] {
            let count = times.iter().filter(|at| **at / 1_000_000 == second).count() as u64;
            let x = LEFT + second * SECOND;
            let y = panel.y(count);
            let height = panel.bottom() - y;
            let bar = format!(
                "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"10\" height=\"{height}\"/>\n"
            );
            body.push_str(if height > 0 { &bar } else { "" });
        }
    }
    body
}

/// Draws the number admitted in the period before each tenth of a second, and highlights the excess
/// over the limit.
fn in_each_period(of: &Course, panel: &Panel) -> String {
    let mut body = String::new();
    let mut line = String::new();
    panel.draw(&mut body, "admitted in the last 10 s, and the limit", &[0, 100, 200]);
    let limit = panel.y(LIMIT);
    for at in (0..=LENGTH_S * 10).map(|tenth| tenth * 100_000) {
        let x = x_of(at);
        let y = panel.y(in_period_until(&of.admitted, at));
        write!(line, "{x},{y} ").unwrap();
        if y < limit {
            let height = limit - y;
            writeln!(
                body,
                "<rect class=\"over\" x=\"{x}\" y=\"{y}\" width=\"1.2\" height=\"{height}\"/>"
            )
            .unwrap();
        }
    }
    writeln!(body, "<polyline class=\"line l0\" points=\"{}\"/>", line.trim_end()).unwrap();
    let end = LEFT + LENGTH_S * SECOND;
    writeln!(
        body,
        "<line class=\"limit\" x1=\"{LEFT}\" x2=\"{end}\" y1=\"{limit}\" y2=\"{limit}\"/>"
    )
    .unwrap();
    body
}

/// Draws the cumulative number of requests that each algorithm has admitted.
pub(super) fn comparison(all: &[Course]) -> String {
    let mut body = String::new();
    let panel = Panel { top: 58, height: 260, most: 600 };
    panel.draw(&mut body, "admitted since the beginning", &[0, 200, 400, 600]);
    for (number, one) in all.iter().enumerate() {
        let points = (0..=LENGTH_S * 2).map(|half| half * 500_000).map(|at| {
            let count = one.admitted.iter().filter(|time| **time <= at).count() as u64;
            format!("{},{}", x_of(at), panel.y(count))
        });
        let points = points.collect::<Vec<_>>().join(" ");
        writeln!(body, "<polyline class=\"line l{number}\" points=\"{points}\"/>").unwrap();
        let y = panel.top + 16 + 18 * number as u64;
        let name = one.name.replace('_', " ");
        let count = one.admitted.len();
        let x = LEFT + 12;
        let end = LEFT + 34;
        let text = LEFT + 42;
        writeln!(
            body,
            "<line class=\"line l{number}\" x1=\"{x}\" x2=\"{end}\" y1=\"{}\" y2=\"{}\"/>",
            y - 4,
            y - 4
        )
        .unwrap();
        writeln!(body, "<text x=\"{text}\" y=\"{y}\">{name}: {count}</text>").unwrap();
    }
    seconds(&mut body, panel.bottom());
    let offered = all.first().map_or(0, |one| one.offered.len());
    picture(
        &format!("the same {offered} requests in a minute, limit {LIMIT} in {PERIOD_S} s"),
        354,
        &body,
    )
}

/// A part of a chart with a vertical axis of its own, from 0 to `most`.
struct Panel {
    top: u64,
    height: u64,
    most: u64,
}

impl Panel {
    fn bottom(&self) -> u64 {
        self.top + self.height
    }

    fn y(&self, value: u64) -> u64 {
        self.bottom() - value.min(self.most) * self.height / self.most
    }

    /// Draws the name, and a grid line for each of `marks`.
    fn draw(&self, body: &mut String, name: &str, marks: &[u64]) {
        writeln!(body, "<text x=\"{LEFT}\" y=\"{}\">{name}</text>", self.top - 8).unwrap();
        for mark in marks {
            let y = self.y(*mark);
            let end = LEFT + LENGTH_S * SECOND;
            writeln!(
                body,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{end}\" y1=\"{y}\" y2=\"{y}\"/>"
            )
            .unwrap();
            writeln!(
                body,
                "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{mark}</text>",
                LEFT - 6,
                y + 4
            )
            .unwrap();
        }
    }
}

/// Returns the hits in the period that ends at `at`, inclusive.
fn in_period_until(admitted: &[u64], at: u64) -> u64 {
    admitted.iter().filter(|time| **time <= at && **time + PERIOD_S * 1_000_000 > at).count() as u64
}

/// Returns the x coordinate of an instant, with one decimal.
fn x_of(at_us: u64) -> String {
    let tenths = LEFT * 10 + at_us * SECOND / 100_000;
    format!("{}.{}", tenths / 10, tenths % 10)
}

fn seconds(body: &mut String, bottom: u64) {
    for second in (0..=LENGTH_S).step_by(10) {
        let x = LEFT + second * SECOND;
        let y = bottom + 18;
        writeln!(body, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\">{second} s</text>")
            .unwrap();
    }
}

fn picture(title: &str, height: u64, body: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" role=\"img\">\n<title>{title}</title>\n\
         <style>{STYLE}</style>\n<rect class=\"card\" x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"8\"/>\n\
         <text class=\"strong\" x=\"{LEFT}\" y=\"24\">{title}</text>\n{body}</svg>\n",
        WIDTH - 1,
        height - 1
    )
}
