//! Drawings in memory: what all modules that draw SVG have in common. What is drawn is theirs, and
//! who writes it where is the command's business.

/// What the drawing library says of a step.
pub type Drawn = Result<(), Box<dyn std::error::Error>>;

/// The text of what `render` draws.
///
/// # Errors
/// With the words of the drawing library.
pub fn drawing(render: impl FnOnce(&mut String) -> Drawn) -> Result<String, String> {
    let mut text = String::new();
    render(&mut text).map_err(|e| e.to_string())?;
    Ok(text)
}
