//! The admin page, served at `/` to browsers: rates of the rules, denials, policies and the store.
//!
//! Plain HTML, CSS and ES modules, embedded in the binary: no build step, and no external
//! resources. The files contain no data and therefore need no token; the page loads its data from
//! the API with the token of its user. To add a file, put it beside this one and list it in
//! [`FILES`].

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use sha2::{Digest as _, Sha256};

use super::accept::accepts;

const JAVASCRIPT: &str = "text/javascript; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";

/// Allows only resources of this origin. Scripts cannot create HTML from text (`trusted-types`),
/// and no page can embed this one in a frame.
const CONTENT_SECURITY_POLICY: &str = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                                       object-src 'none'; require-trusted-types-for 'script'; trusted-types 'none'";
/// Cache policy of the files. Their path `/page/VERSION/` changes with the content, so browsers may
/// cache them forever.
const IMMUTABLE: &str = "public, max-age=31536000, immutable";
/// Placeholder in the index page for the directory of its files.
const FOLDER: &str = "FOLDER";

const INDEX: &str = include_str!("index.html");

/// A file of the page: name, content type and content.
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
    File {
        name: "uplot/uPlot.js",
        kind: JAVASCRIPT,
        text: include_str!("uplot/uPlot.iife.min.js"),
    },
    File { name: "uplot/uPlot.css", kind: CSS, text: include_str!("uplot/uPlot.min.css") },
    File {
        name: "uplot/LICENSE",
        kind: "text/plain; charset=utf-8",
        text: include_str!("uplot/LICENSE"),
    },
];

/// The page in the form in which it is served.
#[derive(Clone)]
pub(super) struct AdminPage(Arc<PageFile>);

struct PageFile {
    /// Digest of all files.
    version: String,
    index: String,
    /// The version as a quoted ETag.
    tag: String,
}

impl AdminPage {
    pub(super) fn new() -> Self {
        let texts = FILES.iter().map(|file| file.text).chain([INDEX]);
        let digest = texts.fold(Sha256::new(), |digest, text| digest.chain_update(text)).finalize();
        let version: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        let index = INDEX.replace(FOLDER, &format!("/page/{version}"));
        Self(Arc::new(PageFile { index, tag: format!("\"{version}\""), version }))
    }

    /// Returns the routes of the files that the page refers to.
    pub(super) fn files(&self) -> Router {
        Router::new().route("/page/{version}/{*name}", get(file).with_state(self.clone()))
    }
}

/// Serves the page instead of the index of paths at `/` if the client accepts HTML.
pub(super) async fn serve_page(
    State(AdminPage(served)): State<AdminPage>,
    request: Request,
    next: Next,
) -> Response {
    let headers = request.headers();
    let mut response = if !accepts(headers, "text/html")
        || ![Method::GET, Method::HEAD].contains(request.method())
    {
        next.run(request).await
    } else if has_tag(headers, &served.tag) {
        (StatusCode::NOT_MODIFIED, cache_headers(&served.tag, "no-cache")).into_response()
    } else {
        let kind = [(header::CONTENT_TYPE, "text/html; charset=utf-8")];
        (cache_headers(&served.tag, "no-cache"), kind, served.index.clone()).into_response()
    };
    response.headers_mut().insert(header::VARY, header::HeaderValue::from_static("accept"));
    response
}

/// Returns `true` if the client has the page with a tag.
fn has_tag(headers: &HeaderMap, tag: &str) -> bool {
    let known = headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    known.is_some_and(|known| known.contains(tag))
}

async fn file(
    State(AdminPage(served)): State<AdminPage>,
    Path((version, name)): Path<(String, String)>,
) -> Response {
    match FILES.iter().find(|file| file.name == name) {
        Some(file) if version == served.version => {
            (cache_headers(&served.tag, IMMUTABLE), [(header::CONTENT_TYPE, file.kind)], file.text)
                .into_response()
        }
        Some(_) => (StatusCode::NOT_FOUND, "the file is of another version; reload the page\n")
            .into_response(),
        None => (StatusCode::NOT_FOUND, "not found\n").into_response(),
    }
}

/// Returns the headers common to the page and its files.
fn cache_headers(tag: &str, keep: &'static str) -> HeaderMap {
    let fixed = [
        (header::CACHE_CONTROL, keep),
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    let mut headers: HeaderMap = fixed
        .into_iter()
        .map(|(name, value)| (name, header::HeaderValue::from_static(value)))
        .collect();
    headers.extend(header::HeaderValue::from_str(tag).ok().map(|tag| (header::ETAG, tag)));
    headers
}
