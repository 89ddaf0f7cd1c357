//! The stylesheet and the script, embedded in the binary.
//!
//! Their URLs contain a hash of their content, so that browsers keep them for ever and a new build is seen at once.

use std::sync::LazyLock;

/// How long a browser may keep an asset: its URL never has other content.
pub(crate) const CACHE: &str = "public, max-age=31536000, immutable";

/// What pages may load and send: nothing but this server's own files, without inline styles and scripts. Images may be in the page.
pub(crate) const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; \
     connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// A file of the dashboard.
#[derive(Debug)]
pub(crate) struct Asset {
    /// Its URL.
    pub(crate) url: String,
    pub(crate) content_type: &'static str,
    pub(crate) bytes: Vec<u8>,
}

static ASSETS: LazyLock<[Asset; 2]> = LazyLock::new(|| {
    let css = squeezed(include_str!("../../assets/app.css"), "/*");
    // No string of the stylesheet has these pairs of characters.
    let css = css.replace(": ", ":").replace("; ", ";").replace(", ", ",");
    let js = squeezed(include_str!("../../assets/app.js"), "//");
    [asset("css", "text/css; charset=utf-8", css), asset("js", "text/javascript; charset=utf-8", js)]
});

fn asset(extension: &str, content_type: &'static str, text: String) -> Asset {
    let hash = blake3::hash(text.as_bytes()).to_hex();
    Asset { url: format!("/assets/app.{}.{extension}", &hash[..16]), content_type, bytes: text.into_bytes() }
}

/// The text without indentation, empty lines and comments that are lines of their own. No string in the files has several lines.
fn squeezed(text: &str, comment: &str) -> String {
    let mut squeezed = String::with_capacity(text.len());
    let mut is_comment = false;
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        is_comment |= line.starts_with(comment);
        if !is_comment {
            squeezed.push_str(line);
            squeezed.push('\n');
        }
        // A comment between slashes and stars ends where it says.
        is_comment &= comment == "/*" && !line.ends_with("*/");
    }
    squeezed
}

/// The URL of the stylesheet.
pub(crate) fn stylesheet() -> &'static str {
    &ASSETS[0].url
}

/// The URL of the script.
pub(crate) fn script() -> &'static str {
    &ASSETS[1].url
}

/// The asset with this URL; `None` for any other path, and for assets of another build.
pub(crate) fn find(url: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.url == url)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    const CSS: &str = include_str!("../../assets/app.css");
    const JS: &str = include_str!("../../assets/app.js");

    #[test]
    fn assets_are_small_and_found_by_their_url() {
        let [css, js] = &*ASSETS;
        assert!(css.bytes.len() <= 40 << 10, "the stylesheet has {} bytes", css.bytes.len());
        assert!(js.bytes.len() <= 25 << 10, "the script has {} bytes", js.bytes.len());
        assert_eq!(find(stylesheet()).map(|asset| asset.content_type), Some("text/css; charset=utf-8"));
        assert_eq!(find(script()).map(|asset| asset.content_type), Some("text/javascript; charset=utf-8"));
        assert!(find("/assets/app.css").is_none());
    }

    #[test]
    fn comments_and_indentation_are_not_sent() {
        assert_eq!(squeezed("/* one\n two */\n a{b: c}\n\n /* x */\n  d{}\n", "/*"), "a{b: c}\nd{}\n");
        assert_eq!(
            squeezed("// one\nconst a = 'b // c';\n  // two\n  f();\n", "//"),
            "const a = 'b // c';\nf();\n"
        );
        assert!(CSS.matches('`').count() == 0 && JS.lines().all(|line| line.matches('`').count() % 2 == 0));
    }

    /// The colours of a theme: 0 light, 1 dark. Each token is written once, as `--name:light-dark(#…,#…)`.
    fn colours(theme: usize) -> HashMap<&'static str, [f64; 3]> {
        let root = CSS.split("/* end of tokens */").next().expect("tokens");
        let mut colours = HashMap::new();
        let mut aliases = Vec::new();
        for declaration in root.split([';', '{', '}']) {
            let declaration = declaration.rsplit("*/").next().unwrap_or_default().trim();
            let Some((name, value)) = declaration.strip_prefix("--").and_then(|rest| rest.split_once(':'))
            else {
                continue;
            };
            if let Some(pair) = value.strip_prefix("light-dark(").and_then(|pair| pair.strip_suffix(')')) {
                let value = pair.split(',').nth(theme).unwrap_or_default();
                if let Some(colour) = rgb(value) {
                    colours.insert(name, colour);
                }
            } else if let Some(other) = value.strip_prefix("var(--") {
                aliases.push((name, other.trim_end_matches(')')));
            } else if let Some(colour) = rgb(value) {
                colours.insert(name, colour);
            }
        }
        for (name, other) in aliases {
            let colour = colours[other];
            colours.insert(name, colour);
        }
        colours
    }

    fn rgb(value: &str) -> Option<[f64; 3]> {
        let digits = value.trim().strip_prefix('#')?;
        let channel = |text: &str| u8::from_str_radix(text, 16).ok().map(f64::from);
        match digits.len() {
            3 => {
                let one = |at: usize| channel(&digits[at..=at].repeat(2));
                Some([one(0)?, one(1)?, one(2)?])
            }
            6 => Some([channel(&digits[..2])?, channel(&digits[2..4])?, channel(&digits[4..])?]),
            _ => None,
        }
    }

    /// The contrast of two colours as WCAG 2 defines it.
    fn contrast(a: [f64; 3], b: [f64; 3]) -> f64 {
        let luminance = |colour: [f64; 3]| {
            let linear = colour.map(|channel| match channel / 255.0 {
                c if c <= 0.04045 => c / 12.92,
                c => ((c + 0.055) / 1.055).powf(2.4),
            });
            0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
        };
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    #[test]
    fn every_text_has_contrast_on_every_ground_in_both_themes() {
        // Where text of these colours stands: on plain grounds, on that of its own state, on selected rows.
        let plain = ["bg", "surface", "raise", "sunken", "hover"];
        let soft = ["accent-soft", "ok-soft", "bad-soft", "warn-soft", "wait-soft", "idle-soft"];
        let mut pairs = Vec::new();
        for text in ["ink", "ink-2", "ink-3", "accent", "ok", "bad", "warn", "wait"] {
            pairs.extend(plain.map(|ground| (text, ground)));
        }
        for text in ["ink", "ink-2", "accent"] {
            pairs.extend(soft.map(|ground| (text, ground)));
        }
        pairs.extend([("ink-3", "accent-soft"), ("ink-3", "idle-soft"), ("ink-3", "warn-soft")]);
        pairs.extend(["ok", "bad", "warn", "wait"].map(|state| (state, "accent-soft")));
        pairs.extend([("ok", "ok-soft"), ("bad", "bad-soft"), ("warn", "warn-soft"), ("wait", "wait-soft")]);
        pairs.extend([("on-accent", "accent-fill"), ("on-fill", "ok-fill"), ("on-fill", "warn-fill")]);
        let mut low = Vec::new();
        for theme in [0, 1] {
            let colours = colours(theme);
            for (text, ground) in &pairs {
                let ratio = contrast(colours[text], colours[ground]);
                if ratio < 4.5 {
                    low.push(format!("{text} on {ground} in theme {theme}: {ratio:.2}"));
                }
            }
            // Bars and edges that mean something: 3 to 1 against the panel.
            for fill in
                ["ok-fill", "bad-fill", "warn-fill", "wait-fill", "accent-fill", "bad", "warn", "wait"]
            {
                let ratio = contrast(colours[fill], colours["surface"]);
                if ratio < 2.9 {
                    low.push(format!("{fill} on surface in theme {theme}: {ratio:.2}"));
                }
            }
        }
        assert!(low.is_empty(), "{low:#?}");
    }

    /// The templates, with their paths.
    fn templates(folder: &std::path::Path) -> Vec<(String, String)> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(folder).expect("the templates") {
            let path = entry.expect("an entry").path();
            match path.is_dir() {
                true => found.extend(templates(&path)),
                false => {
                    found.push((path.display().to_string(), std::fs::read_to_string(&path).expect("text")))
                }
            }
        }
        found
    }

    #[test]
    fn templates_have_no_styles_scripts_or_files_of_others() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("templates");
        for (path, text) in templates(&folder) {
            for forbidden in
                [" style=", "<style", " onclick=", " onsubmit=", " onchange=", "javascript:", "src=\"http"]
            {
                assert!(
                    !text.contains(forbidden),
                    "{path} has {forbidden}: the content security policy forbids it"
                );
            }
            assert_eq!(text.matches("<script").count(), text.matches("<script src=").count(), "{path}");
        }
    }

    #[test]
    fn styles_and_icons_need_no_other_file() {
        assert!(!CSS.contains("@import") && !CSS.contains("url("), "the stylesheet loads something");
    }
}
