//! The files of the page: how they are served, and their length.

use std::path::Path;

use crate::support::policy::{Policies, daily};
use crate::support::tollgate::Tollgate;
use crate::support::web::Web;

/// Maximum lines per file of the page; vendored files are exempt.
const MAX_LINES: usize = 400;

#[tokio::test]
async fn assets_are_immutable_or_revalidated_and_the_page_is_isolated() {
    let service = Tollgate::serve(Policies::of(&daily("user", 2)).path());
    let admin = Web::new(service.admin);
    let html = ("accept", b"text/html,*/*".as_slice());
    let index = admin.get_with("/", &[html]).await;
    assert_eq!(
        (index.status, index.header("cache-control"), index.header("vary")),
        (200, "no-cache", "accept")
    );
    let again =
        admin.get_with("/", &[html, ("if-none-match", index.header("etag").as_bytes())]).await;
    assert_eq!((again.status, again.body.as_str()), (304, ""));
    let policy = index.header("content-security-policy").to_owned();
    for part in
        ["default-src 'self'", "frame-ancestors 'none'", "require-trusted-types-for 'script'"]
    {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    let files: Vec<&str> =
        index.body.split('"').filter(|part| part.starts_with("/page/")).collect();
    assert!(files.len() > 10, "{files:?}");
    for file in files {
        let reply = admin.get(file).await;
        assert_eq!(
            (reply.status, reply.header("x-content-type-options")),
            (200, "nosniff"),
            "{file}"
        );
        assert!(
            reply.header("cache-control").contains("immutable")
                && !reply.header("content-type").is_empty(),
            "{file}"
        );
        assert!(!reply.body.contains("//# sourceMappingURL"), "{file}");
    }
    for (path, status) in
        [("/page/0123456789abcdef/app.js", 404), ("/page/x/../../etc/passwd", 404)]
    {
        assert_eq!(admin.get(path).await.status, status, "{path}");
    }
    assert_eq!(admin.get_with("/", &[html, ("host", b"evil.example")]).await.status, 421);
    assert!(
        admin.get("/").await.body.contains("/policies: "),
        "other clients than browsers get the list"
    );
}

#[test]
fn every_file_of_the_page_is_short_and_never_parses_text_as_html() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/admin/page");
    let files = std::fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path())
        .filter(|path| path.is_file());
    for path in files.chain([Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/page/browser.mjs")])
    {
        let text = std::fs::read_to_string(&path).unwrap();
        let lines = text.lines().count();
        assert!(lines <= MAX_LINES, "{}: {lines} lines", path.display());
        for unsafe_way in
            ["innerHTML", "outerHTML =", "insertAdjacentHTML", "document.write", "eval("]
        {
            assert!(!text.contains(unsafe_way), "{}: {unsafe_way}", path.display());
        }
    }
}
