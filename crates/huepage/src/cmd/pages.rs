//! `huepage completions` and the hidden `huepage man-pages`: what a package holds beside the program, made
//! from the definition of the command line, so that neither can differ from it.

use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, Command, ValueEnum};
use clap_complete::Shell;

use crate::exit::{CmdError, ExitCode};
use crate::partition::internal;
use crate::style;

const EXAMPLES: &str = "\
Examples:
  huepage completions bash > /etc/bash_completion.d/huepage
  huepage completions zsh > /usr/local/share/zsh/site-functions/_huepage
  huepage completions fish > ~/.config/fish/completions/huepage.fish";

/// Print what lets a shell complete commands and options
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Write a manual page of each command, and completions for each shell, into a directory
#[derive(Args, Debug)]
pub struct ManPagesArgs {
    /// The directory; it is made
    directory: PathBuf,
}

/// Prints the completions of one shell for all commands below `root`.
pub fn completions(args: &CompletionsArgs, mut root: Command) -> Result<u8, CmdError> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut root, "huepage", &mut text);
    style::print(&String::from_utf8_lossy(&text)).map_err(internal)?;
    Ok(0)
}

/// Writes `huepage.1`, `huepage-run.1` and so on, and the completions by the names that shells look for.
pub fn man_pages(args: &ManPagesArgs, root: Command) -> Result<u8, CmdError> {
    write_all(&args.directory, root).map_err(|e| {
        let what =
            format!("{}: {e}; name a directory that can be written", args.directory.display());
        CmdError::new(ExitCode::Internal, what)
    })?;
    Ok(0)
}

fn write_all(directory: &Path, mut root: Command) -> io::Result<()> {
    std::fs::create_dir_all(directory)?;
    clap_mangen::generate_to(root.clone(), directory)?;
    for shell in Shell::value_variants() {
        clap_complete::generate_to(*shell, &mut root, "huepage", directory)?;
    }
    Ok(())
}
