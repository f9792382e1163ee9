//! What is done with containers that ask for a share: options of the command, which the configuration that a runtime
//! has for the plugin may name as well.

use clap::{Args, FromArgMatches as _};

use crate::cmd::attach::AttachArgs;

/// What is done with containers that ask for a share.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct HookChoice {
    /// Refuse a container that cannot have its share; else it starts without one
    #[arg(long)]
    pub strict: bool,

    /// More options, as `huepage attach` has them
    #[arg(last = true, value_name = "OPTION")]
    pub options: Vec<String>,
}

impl HookChoice {
    /// With what a configuration says besides, in words as on a command line.
    ///
    /// # Errors
    /// In words: a word that is no option.
    pub fn with(&self, configuration: &str) -> Result<HookChoice, String> {
        let words = configuration.split_whitespace();
        let command = HookChoice::augment_args(clap::Command::new("nri").no_binary_name(true));
        let found = command.try_get_matches_from(words).map_err(|error| first_line(&error))?;
        let mut choice =
            HookChoice::from_arg_matches(&found).map_err(|error| first_line(&error))?;
        choice.strict |= self.strict;
        choice.options.splice(0..0, self.options.iter().cloned());
        choice.check()?;
        Ok(choice)
    }

    /// Whether `huepage attach` would take the options: each container would fail for one that it does not.
    ///
    /// # Errors
    /// In words: what it says against them.
    pub fn check(&self) -> Result<(), String> {
        let attach = AttachArgs::augment_args(clap::Command::new("attach").no_binary_name(true));
        let own = ["--quiet", "--share=25%", "--cgroup=/"].map(str::to_owned);
        let words = own.iter().chain(&self.options);
        attach.try_get_matches_from(words).map(drop).map_err(|error| first_line(&error))
    }

    /// What the hook is called with.
    pub fn words(&self) -> Vec<String> {
        let lenient = (!self.strict).then_some("--lenient");
        let mark = (!self.options.is_empty()).then_some("--");
        let own = ["huepage", "oci-hook"].into_iter().chain(lenient).chain(mark);
        own.map(str::to_owned).chain(self.options.iter().cloned()).collect()
    }
}

fn first_line(error: &clap::Error) -> String {
    let said = error.to_string();
    let line = said.lines().next().unwrap_or_default().trim_start_matches("error: ");
    format!("{line}; see `huepage nri --help` and `huepage attach --help`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_adds_to_the_command_line() {
        let options = ["--colors-from", "declared"].map(str::to_owned).to_vec();
        let own = HookChoice { strict: false, options };
        assert_eq!(own.with(" \n"), Ok(own.clone()));
        let both = own.with("--strict -- --stock 16M\n").unwrap();
        assert!(both.strict);
        let words = "huepage oci-hook -- --colors-from declared --stock 16M";
        assert_eq!(both.words().join(" "), words);
        assert_eq!(HookChoice::default().words(), ["huepage", "oci-hook", "--lenient"]);
    }

    #[test]
    fn what_attach_would_not_take_is_said_at_once() {
        let said = |text: &str| HookChoice::default().with(text).unwrap_err();
        for text in ["--strickt", "words", "-- --colours-from x", "-- --share 50%", "--help"] {
            assert_eq!(said(text).lines().count(), 1, "{text}: {}", said(text));
        }
        assert!(said("-- --zzz 1").contains("'--zzz'"), "{}", said("-- --zzz 1"));
    }
}
