//! The page: one file, without a build step. Its script and its style are the only ones that a browser may run: the
//! policy has their hashes.

use std::sync::LazyLock;

use base64::{Engine, engine::general_purpose::STANDARD};
use ring::digest::{SHA256, digest};

pub(super) const PAGE: &str = include_str!("page.html");

/// The content security policy of the page.
pub(super) static POLICY: LazyLock<String> = LazyLock::new(|| {
    let (script, style) = (hash(inside("script")), hash(inside("style")));
    format!(
        "default-src 'none'; connect-src 'self'; img-src data:; script-src 'sha256-{script}'; \
         style-src 'sha256-{style}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
});

/// The text of the page's only element of this kind.
fn inside(element: &str) -> &'static str {
    let (_, rest) = PAGE.split_once(&format!("<{element}>")).unwrap_or_default();
    rest.split_once(&format!("</{element}>")).map_or("", |(text, _)| text)
}

fn hash(text: &str) -> String {
    STANDARD.encode(digest(&SHA256, text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_one_script_and_one_style_and_nothing_from_elsewhere() {
        for element in ["script", "style"] {
            assert_eq!(PAGE.matches(&format!("<{element}")).count(), 1);
            assert!(inside(element).len() > 1000);
        }
        assert!(inside("script").lines().count() <= 400);
        for markup in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "http:", "https:", " style="] {
            assert!(!PAGE.contains(markup), "{markup}");
        }
    }
}
