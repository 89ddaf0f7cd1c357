//! Pictures of every page in light, dark and on a phone, in `target/screenshots`: for people who look at them.

use std::path::PathBuf;

use crate::{browser::Browser, site::Site};

/// Looks: a name, the theme, the width.
const VARIANTS: [(&str, &str, u32); 3] =
    [("light", "light", 1440), ("dark", "dark", 1440), ("phone", "light", 390)];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_page_has_its_picture() {
    let folder = folder();
    let site = Site::fill().await;
    let browser = Browser::open(&site.server, "/").await;
    for (name, theme, width) in VARIANTS {
        let folder = folder.join(name);
        std::fs::create_dir_all(&folder).expect("a folder");
        browser.set_theme(theme).await;
        for (name, path) in &site.pages {
            browser.goto(path).await;
            let picture = browser.screenshot(width).await;
            assert!(picture.starts_with(b"\x89PNG"), "{name}");
            std::fs::write(folder.join(format!("{name}.png")), picture).expect("written");
        }
    }
}

/// The folder of the pictures, in the target folder of this build.
fn folder() -> PathBuf {
    let test = std::env::current_exe().expect("this test");
    let target = test.ancestors().find(|path| path.join("debug").is_dir() || path.join("release").is_dir());
    target.expect("a target folder").join("screenshots")
}
