//! Keys and families as reports show them.

use std::fmt::Write as _;

use hob_schema::{Catalog, FamilyId};

/// A longer key is quoted, and shortened.
const MAX_KEY_CHARS: usize = 200;
const MAX_QUOTED_CHARS: usize = 40;

/// `chat.online`
pub(crate) fn family_name(catalog: &Catalog, id: FamilyId) -> String {
    format!("{}.{}", catalog.schema(id).name, catalog.family(id).name)
}

/// A key for a report: as it is if it is plain text, otherwise quoted as redis-cli does, and shortened when it is long.
pub(crate) fn display_key(key: &[u8]) -> String {
    let plain = |text: &&str| {
        !text.is_empty() && !text.chars().any(char::is_control) && text.chars().count() <= MAX_KEY_CHARS
    };
    std::str::from_utf8(key).ok().filter(plain).map_or_else(|| quoted_key(key), str::to_owned)
}

fn quoted_key(key: &[u8]) -> String {
    let mut shown = String::from("\"");
    let mut chars = 0;
    for chunk in key.utf8_chunks() {
        for char in chunk.valid().chars() {
            if chars == MAX_QUOTED_CHARS {
                return shown + "\"…";
            }
            chars += 1;
            match char {
                '"' | '\\' => shown.extend(['\\', char]),
                '\n' => shown += "\\n",
                '\r' => shown += "\\r",
                '\t' => shown += "\\t",
                _ if char.is_control() => escape(char.encode_utf8(&mut [0; 4]).as_bytes(), &mut shown),
                _ => shown.push(char),
            }
        }
        if !chunk.invalid().is_empty() {
            if chars == MAX_QUOTED_CHARS {
                return shown + "\"…";
            }
            chars += 1;
            escape(chunk.invalid(), &mut shown);
        }
    }
    shown + "\""
}

fn escape(bytes: &[u8], out: &mut String) {
    for byte in bytes {
        let _ = write!(out, "\\x{byte:02x}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_are_not_plain_text_are_quoted_as_redis_cli_does() {
        for (key, shown) in [
            (&b"cart:7"[..], "cart:7"),
            ("naïve:é".as_bytes(), "naïve:é"),
            (b"", r#""""#),
            (b"caf\xe9:2", r#""caf\xe9:2""#),
            (b"a\nb\x1b\0\"\\", r#""a\nb\x1b\x00\"\\""#),
            ("\u{85}".as_bytes(), r#""\xc2\x85""#),
        ] {
            assert_eq!(display_key(key), shown);
        }
        assert_eq!(display_key(&[b'x'; 300]), format!("\"{}\"…", "x".repeat(40)));
        assert_eq!(display_key(&[b'\xff'; 300]), format!("\"{}\"…", "\\xff".repeat(40)));
    }
}
