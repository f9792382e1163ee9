//! Pages of HTML in a real browser, without a screen: all is drawn and large enough to read, nothing is wider than the
//! window, and dark screens get dark drawings.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

const NAMES: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
/// What the browser says of a page, in place of its title.
const LOOK: &str = "<script>document.title = JSON.stringify({
    drawings: [...document.querySelectorAll('svg')].map(svg => {
        const box = svg.getBoundingClientRect();
        return {width: box.width, height: box.height, filter: getComputedStyle(svg).filter};
    }),
    letters: Math.min(...[...document.querySelectorAll('svg text')].map(text => text.getBoundingClientRect().height)),
    cut: [...document.querySelectorAll('pre span')].filter(line => line.getBoundingClientRect().right > innerWidth).length,
    text: document.body.innerText.length,
    overflow: document.documentElement.scrollWidth - innerWidth,
})</script>";

/// Opens a page with so many drawings, light and dark.
///
/// # Panics
/// When something is not as it should be.
pub fn draws(page: &Path, drawings: usize) {
    let found =
        |name: &&&str| Command::new(name).arg("--version").stdout(Stdio::null()).status().is_ok();
    let Some(browser) = NAMES.iter().find(found) else {
        return super::skip(
            "pages in a browser",
            "no chromium; scripts/setup-programs.sh installs it",
        );
    };
    let text = std::fs::read_to_string(page).unwrap();
    for needs in ["src=", "href=", "url(", "@import", "<script"] {
        assert!(!text.contains(needs), "it needs something else: {needs}");
    }
    for (scheme, filtered) in [("1", false), ("0", true)] {
        let seen = opened(browser, page, scheme);
        let drawn = seen["drawings"].as_array().unwrap();
        assert_eq!(drawn.len(), drawings, "{seen:#}");
        for drawing in drawn {
            let size = |name: &str| drawing[name].as_f64().unwrap();
            assert!(size("width") > 200.0 && size("height") > 30.0, "{seen:#}");
            assert_eq!(drawing["filter"] != "none", filtered, "{seen:#}");
        }
        assert!(seen["letters"].as_f64() > Some(8.0), "letters too small to read: {seen:#}");
        assert_eq!(seen["cut"], 0, "sentences beyond the window: {seen:#}");
        assert!(seen["text"].as_u64() > Some(40), "{seen:#}");
        let fits = seen["overflow"].as_i64().is_some_and(|overflow| overflow <= 0);
        assert!(fits, "wider than the window: {seen:#}");
    }
}

/// What the browser sees of it where a dark (0) or light (1) scheme is preferred.
fn opened(browser: &str, page: &Path, scheme: &str) -> Value {
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("page.html");
    std::fs::write(&copy, std::fs::read_to_string(page).unwrap() + LOOK).unwrap();
    let mut command = Command::new("timeout");
    command.args([
        "120",
        browser,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
    ]);
    command.arg(format!("--blink-settings=preferredColorScheme={scheme}"));
    command.arg(format!("--user-data-dir={}", dir.path().join("profile").display()));
    command
        .args(["--window-size=1200,900", "--dump-dom"])
        .arg(format!("file://{}", copy.display()));
    let output = command.stdin(Stdio::null()).output().unwrap();
    let dom = String::from_utf8_lossy(&output.stdout);
    let title = dom.split("<title>").nth(1).and_then(|rest| rest.split("</title>").next());
    let title = title.unwrap_or_else(|| panic!("no page: {output:?}"));
    serde_json::from_str(title).unwrap_or_else(|error| panic!("{error}: {title}"))
}
