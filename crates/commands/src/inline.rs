//! Inline commands: a line of text instead of an array, for people with `telnet`.

/// Splits a line into arguments separated by spaces, with `"…"` (and escapes in it) and `'…'`; `None` if a quote is not
/// closed, or closed in the middle of an argument.
#[must_use]
pub fn inline_words(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    let mut rest = line.trim_ascii_start();
    while !rest.is_empty() {
        let mut word = Vec::new();
        loop {
            rest = match rest {
                [] => break,
                [space, ..] if space.is_ascii_whitespace() => break,
                [quote @ (b'"' | b'\''), tail @ ..] => {
                    let after = read_quoted(*quote, tail, &mut word)?;
                    if after.first().is_some_and(|byte| !byte.is_ascii_whitespace()) {
                        return None;
                    }
                    after
                }
                [byte, tail @ ..] => {
                    word.push(*byte);
                    tail
                }
            };
        }
        words.push(word);
        rest = rest.trim_ascii_start();
    }
    Some(words)
}

/// Reads up to the closing quote into `word`; returns the rest.
fn read_quoted<'a>(quote: u8, mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    let hex = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
    loop {
        rest = match rest {
            [] => return None,
            [byte, tail @ ..] if *byte == quote => return Some(tail),
            [b'\\', b'\'', tail @ ..] if quote == b'\'' => {
                word.push(b'\'');
                tail
            }
            [b'\\', b'x', high, low, tail @ ..]
                if quote == b'"' && hex(*high).is_some() && hex(*low).is_some() =>
            {
                word.push(hex(*high)? * 16 + hex(*low)?);
                tail
            }
            [b'\\', escaped, tail @ ..] if quote == b'"' => {
                word.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                tail
            }
            [byte, tail @ ..] => {
                word.push(*byte);
                tail
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_is_split_at_spaces_outside_quotes() {
        let words = |line: &str| {
            let words = inline_words(line.as_bytes())?;
            Some(
                words.into_iter().map(|word| String::from_utf8_lossy(&word).into_owned()).collect::<Vec<_>>(),
            )
        };
        assert_eq!(words("SET  k \"a b\\n\\x41\" ").unwrap(), ["SET", "k", "a b\nA"]);
        assert_eq!(words("ECHO 'it\\'s'").unwrap(), ["ECHO", "it's"]);
        assert_eq!(words("  ").unwrap(), [""; 0]);
        assert_eq!(words("ECHO \"a"), None);
        assert_eq!(words("ECHO \"a\"b"), None);
    }
}
