//! Errors of serde in words that do not require knowledge of the program's types.

/// Rewrites a message of serde: `expected struct variant AuthSpec::Bearer` becomes `expected an object`. Other messages
/// stay as they are.
#[must_use]
pub fn plain_serde_error(message: &str) -> String {
    if let Some((before, _)) = message.split_once("data did not match any variant of untagged enum ") {
        return format!("{before}has none of the allowed forms");
    }
    let Some((found, expected)) = message.rsplit_once(", expected ") else { return message.to_owned() };
    format!("{}, expected {}", plain_found(found), plain_expected(expected))
}

fn plain_found(found: &str) -> String {
    const WORDS: [(&str, &str); 4] = [
        ("invalid type: map", "invalid type: object"),
        ("invalid type: sequence", "invalid type: list"),
        ("invalid type: unit value", "invalid type: null"),
        ("invalid type: floating point", "invalid type: number"),
    ];
    for (rust, plain) in WORDS {
        if let Some(rest) = found.strip_prefix(rust) {
            return format!("{plain}{rest}");
        }
    }
    found.to_owned()
}

fn plain_expected(expected: &str) -> String {
    // The position that some parsers add, as in `expected u32 at line 1 column 5`.
    let (kind, rest) = match expected.find(" at line ") {
        Some(at) => expected.split_at(at),
        None => (expected, ""),
    };
    format!("{}{rest}", plain_kind(kind))
}

fn plain_kind(kind: &str) -> &str {
    const OBJECTS: [&str; 3] = ["struct ", "internally tagged enum ", "adjacently tagged enum "];
    match kind {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "u128" | "usize" => "a whole number, 0 or more",
        "i8" | "i16" | "i32" | "i64" | "i128" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "a sequence" => "a list",
        "a map" => "an object",
        "string or map" => "a string or an object",
        "map with a single key" => "an object with one field",
        kind if kind.starts_with("tuple ") || kind.starts_with("a tuple of size ") => "a list",
        kind if kind.starts_with("enum ") => "a string or an object",
        kind if kind.starts_with("unit variant ") => "no value",
        kind if OBJECTS.iter().any(|object| kind.starts_with(object)) => "an object",
        kind => kind,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_the_program_are_not_shown() {
        for (message, plain) in [
            (
                "invalid type: string \"x\", expected struct variant AuthSpec::Bearer",
                "invalid type: string \"x\", expected an object",
            ),
            ("invalid type: sequence, expected struct MonitorSpec", "invalid type: list, expected an object"),
            ("invalid type: map, expected a string", "invalid type: object, expected a string"),
            (
                "invalid value: integer `-1`, expected u32",
                "invalid value: integer `-1`, expected a whole number from 0 to 4294967295",
            ),
            (
                "invalid type: floating point `1.5`, expected u64 at line 1 column 9",
                "invalid type: number `1.5`, expected a whole number, 0 or more at line 1 column 9",
            ),
            (
                "invalid type: integer `1`, expected string or map",
                "invalid type: integer `1`, expected a string or an object",
            ),
            ("data did not match any variant of untagged enum Source", "has none of the allowed forms"),
        ] {
            assert_eq!(plain_serde_error(message), plain);
        }
    }

    #[test]
    fn other_messages_stay_as_they_are() {
        for message in [
            "unknown variant `ftp`, expected one of `http`, `tcp`",
            "unknown field `intervall`, expected `interval`",
            "missing field `name`",
            "invalid type: integer `1`, expected a duration such as 30s",
        ] {
            assert_eq!(plain_serde_error(message), message);
        }
    }
}
