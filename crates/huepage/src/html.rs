//! Pages of HTML that need nothing else: a head with a style for light and dark screens, headings, and tables.

/// What a page begins with.
const HEAD: &str = "<!doctype html>\n<meta charset=\"utf-8\">\n\
<style>:root{color-scheme:light dark}body{font:15px sans-serif;margin:2em}table{border-collapse:collapse}\
td,th{padding:.2em .8em;text-align:right;border-bottom:1px solid #8888}\
td:first-child,th:first-child{text-align:left}pre{overflow-x:auto}pre span{white-space:pre-wrap}svg{max-width:100%;height:auto;background:#fff}\
@media(prefers-color-scheme:dark){svg{filter:invert(.93) hue-rotate(180deg)}}</style>\n";

/// A page of this title, with what is in it.
pub fn page(title: &str, body: &str) -> String {
    let title = escaped(title);
    format!("{HEAD}<title>{title}</title>\n<h1>{title}</h1>\n{body}")
}

/// What a command printed, and its drawings (SVG) below.
pub fn report(title: &str, printed: &str, drawings: &[String]) -> String {
    let drawings: String = drawings.iter().map(|drawing| format!("{drawing}\n")).collect();
    let lines: String = printed.split_inclusive('\n').map(line).collect();
    page(title, &format!("<pre>{lines}</pre>\n{drawings}"))
}

/// A line that was printed. Rows of tables keep their columns, however wide; a sentence breaks where the window ends.
fn line(printed: &str) -> String {
    let text = escaped(printed);
    match text.trim().contains("  ") {
        true => text,
        false => format!("<span>{}</span>\n", text.trim_end_matches('\n')),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_printed_is_text_and_drawings_are_drawn() {
        let page = report("a<b", "row  1\nx & y\n", &["<svg></svg>".to_owned()]);
        assert!(page.starts_with("<!doctype html>") && page.contains("<title>a&lt;b</title>"));
        let body = "<pre>row  1\n<span>x &amp; y</span>\n</pre>\n<svg></svg>\n";
        assert!(page.ends_with(body), "{page}");
        let table = table(&["a".to_owned()], &[vec!["<1>".to_owned()]]);
        assert_eq!(table, "<table>\n<tr><th>a</th></tr>\n<tr><td>&lt;1&gt;</td></tr>\n</table>\n");
    }
}
