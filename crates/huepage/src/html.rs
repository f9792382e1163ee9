//! Pages of HTML that need nothing else: a head with a style for light and dark screens, headings, and tables.

/// What a page begins with.
const HEAD: &str = "<!doctype html>\n<meta charset=\"utf-8\">\n\
<style>:root{color-scheme:light dark}body{font:15px sans-serif;margin:2em}table{border-collapse:collapse}\
td,th{padding:.2em .8em;text-align:right;border-bottom:1px solid #8888}\
td:first-child,th:first-child{text-align:left}svg{max-width:100%;height:auto;background:#fff}</style>\n";

/// A page of this title, with what is in it.
pub fn page(title: &str, body: &str) -> String {
    let title = escaped(title);
    format!("{HEAD}<title>{title}</title>\n<h1>{title}</h1>\n{body}")
}

/// A table of headings and cells.
pub fn table(headings: &[String], rows: &[Vec<String>]) -> String {
    let row = |kind: &str, cells: &[String]| {
        let cells = cells.iter().map(|cell| format!("<{kind}>{}</{kind}>", escaped(cell)));
        format!("<tr>{}</tr>\n", cells.collect::<String>())
    };
    let rows: String = rows.iter().map(|cells| row("td", cells)).collect();
    format!("<table>\n{}{rows}</table>\n", row("th", headings))
}

/// Text as it stands in a page.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
