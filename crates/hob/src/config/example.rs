//! Generates `hob.example.toml` from the sections.

use std::fmt::Write;

use hob_service::config::Layers;

use super::kinds;

const HEAD: &str = "\
# All settings, with their defaults. Every line is optional. Flags override environment variables, and environment
# variables override this file: HOB_<SECTION>_<KEY> sets [section] key. See docs/configuration.md.
# Do not write secrets into this file; refer to them as env:NAME or file:PATH.
";

pub(crate) fn example() -> String {
    let mut text = HEAD.to_owned();
    for section in kinds() {
        text.push('\n');
        comment(&mut text, section.about);
        let _ = writeln!(text, "[{}]", section.name);
        for setting in section.settings(&Layers::default()).unwrap_or_default() {
            comment(&mut text, setting.about);
            match setting.value {
                Some(value) => _ = writeln!(text, "# {} = {value}", setting.name),
                None => _ = writeln!(text, "# {} = # not set", setting.name),
            }
        }
    }
    text
}

fn comment(text: &mut String, about: &str) {
    for line in about.lines() {
        let _ = writeln!(text, "#{line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../hob.example.toml");

    #[test]
    fn example_file_is_current() {
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(FILE, example()).unwrap();
        }
        let kept = std::fs::read_to_string(FILE).unwrap();
        assert_eq!(kept, example(), "run: UPDATE_DOCS=1 cargo test -p hob example");
    }

    #[test]
    fn example_is_valid_with_and_without_comments() {
        let written_out: String = example().lines().fold(String::new(), |text, line| {
            // Indented lines are examples in a comment.
            let is_setting = line.contains(" = ") && !line.ends_with("# not set") && !line.starts_with("#  ");
            let line = if is_setting { line.strip_prefix("# ").unwrap_or(line) } else { line };
            text + line + "\n"
        });
        assert_ne!(written_out, example());
        for text in [example(), written_out] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("hob.toml");
            std::fs::write(&path, &text).unwrap();
            if let Err(error) = super::super::load(Some(&path)) {
                panic!("{error}\n{text}");
            }
        }
    }
}
