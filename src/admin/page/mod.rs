//! The page of administration, at `/` for browsers: what is limited now, who is denied, the policies, the store.
//!
//! Plain HTML, CSS and ES modules, held in the binary: nothing is built, and nothing is fetched from elsewhere. They hold no data,
//! so that they need no token; what they show they ask of the API, with the token of whoever reads. To add a file: write it beside
//! this one, and name it in [`FILES`].

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use sha2::{Digest as _, Sha256};

const JAVASCRIPT: &str = "text/javascript; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";

/// Nothing but what comes from here; scripts cannot make HTML of text (`trusted-types`), and no other page can hold this one.
const CONTENT_SECURITY_POLICY: &str = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                                       object-src 'none'; require-trusted-types-for 'script'; trusted-types 'none'";
/// Below `/page/VERSION/`, so that a browser may keep them for good.
const FOR_GOOD: &str = "public, max-age=31536000, immutable";
/// What the page says in the place of the folder of its files.
const FOLDER: &str = "FOLDER";

const INDEX: &str = include_str!("index.html");

/// A file of the page: its name, what it is, and what is in it.
struct File {
    name: &'static str,
    kind: &'static str,
    text: &'static str,
}

const FILES: [File; 17] = [
    File { name: "app.js", kind: JAVASCRIPT, text: include_str!("app.js") },
    File { name: "api.js", kind: JAVASCRIPT, text: include_str!("api.js") },
    File { name: "dom.js", kind: JAVASCRIPT, text: include_str!("dom.js") },
    File { name: "chart.js", kind: JAVASCRIPT, text: include_str!("chart.js") },
    File { name: "now.js", kind: JAVASCRIPT, text: include_str!("now.js") },
    File { name: "denied.js", kind: JAVASCRIPT, text: include_str!("denied.js") },
    File { name: "key.js", kind: JAVASCRIPT, text: include_str!("key.js") },
    File { name: "counter.js", kind: JAVASCRIPT, text: include_str!("counter.js") },
    File { name: "confirm.js", kind: JAVASCRIPT, text: include_str!("confirm.js") },
    File { name: "loads.js", kind: JAVASCRIPT, text: include_str!("loads.js") },
    File { name: "policy.js", kind: JAVASCRIPT, text: include_str!("policy.js") },
    File { name: "store.js", kind: JAVASCRIPT, text: include_str!("store.js") },
    File { name: "page.css", kind: CSS, text: include_str!("page.css") },
    File { name: "icon.svg", kind: "image/svg+xml", text: include_str!("icon.svg") },
    File { name: "uplot/uPlot.js", kind: JAVASCRIPT, text: include_str!("uplot/uPlot.iife.min.js") },
    File { name: "uplot/uPlot.css", kind: CSS, text: include_str!("uplot/uPlot.min.css") },
    File { name: "uplot/LICENSE", kind: "text/plain; charset=utf-8", text: include_str!("uplot/LICENSE") },
];

/// The page, as it is served.
#[derive(Clone)]
pub(super) struct Front(Arc<Served>);

struct Served {
    /// A digest of all files.
    version: String,
    index: String,
    /// The same, as HTTP quotes it.
    tag: String,
}

impl Front {
    pub(super) fn new() -> Self {
        let texts = FILES.iter().map(|file| file.text).chain([INDEX]);
        let digest = texts.fold(Sha256::new(), |digest, text| digest.chain_update(text)).finalize();
        let version: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        let index = INDEX.replace(FOLDER, &format!("/page/{version}"));
        Self(Arc::new(Served { index, tag: format!("\"{version}\""), version }))
    }

    /// The files that the page refers to.
    pub(super) fn files(&self) -> Router {
        Router::new().route("/page/{version}/{*name}", get(file).with_state(self.clone()))
    }
}

/// In the place of what else is at `/`: the page, where HTML is asked for.
pub(super) async fn instead(State(Front(served)): State<Front>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    let asks = |name, part: &str| {
        headers.get(name).and_then(|value| value.to_str().ok()).is_some_and(|value| value.contains(part))
    };
    let mut response = if !asks(header::ACCEPT, "text/html") || ![Method::GET, Method::HEAD].contains(request.method())
    {
        next.run(request).await
    } else if asks(header::IF_NONE_MATCH, &served.tag) {
        (StatusCode::NOT_MODIFIED, held(&served.tag, "no-cache")).into_response()
    } else {
        let kind = [(header::CONTENT_TYPE, "text/html; charset=utf-8")];
        (held(&served.tag, "no-cache"), kind, served.index.clone()).into_response()
    };
    response.headers_mut().insert(header::VARY, header::HeaderValue::from_static("accept"));
    response
}

async fn file(State(Front(served)): State<Front>, Path((version, name)): Path<(String, String)>) -> Response {
    match FILES.iter().find(|file| file.name == name) {
        Some(file) if version == served.version => {
            (held(&served.tag, FOR_GOOD), [(header::CONTENT_TYPE, file.kind)], file.text).into_response()
        }
        Some(_) => {
            (StatusCode::NOT_FOUND, "of another version of the page, which wants to be loaded again\n").into_response()
        }
        None => (StatusCode::NOT_FOUND, "no file of the page\n").into_response(),
    }
}

/// What a browser is told of everything here.
fn held(tag: &str, keep: &'static str) -> HeaderMap {
    let fixed = [
        (header::CACHE_CONTROL, keep),
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    let mut headers: HeaderMap =
        fixed.into_iter().map(|(name, value)| (name, header::HeaderValue::from_static(value))).collect();
    headers.extend(header::HeaderValue::from_str(tag).ok().map(|tag| (header::ETAG, tag)));
    headers
}
