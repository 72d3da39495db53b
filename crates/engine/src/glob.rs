//! Redis's glob patterns: `*`, `?`, `[a-c]`, `[^x]` and `\` to escape.

/// Whether `text` matches `pattern` as `KEYS`, `SCAN MATCH` and `PSUBSCRIBE` understand it.
///
/// Only the last star is retried, so a match takes at most `pattern × text` steps, however many stars a hostile pattern
/// has.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    if text.is_empty() {
        // As in Redis, not even a star matches.
        return pattern.is_empty();
    }
    let (mut p, mut t) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        match step(&pattern[p..], text[t]) {
            Step::Star => {
                retry = Some((p, t));
                p += 1;
            }
            Step::Matched(width) => {
                p += width;
                t += 1;
            }
            Step::Failed => {
                let Some((star, from)) = retry else { return false };
                retry = Some((star, from + 1));
                p = star + 1;
                t = from + 1;
            }
        }
    }
    pattern[p..].iter().all(|&byte| byte == b'*')
}

/// Whether a key or element matches. A single star matches everything, including the empty name.
pub(crate) fn selects(pattern: &[u8], name: &[u8]) -> bool {
    pattern == b"*" || matches(pattern, name)
}

enum Step {
    Star,
    /// The byte matches this many bytes of the pattern.
    Matched(usize),
    Failed,
}

fn step(pattern: &[u8], byte: u8) -> Step {
    let (fits, width) = match pattern {
        [] => (false, 0),
        [b'*', ..] => return Step::Star,
        [b'?', ..] => (true, 1),
        [b'[', class @ ..] => class_fits(class, byte),
        [b'\\', escaped, ..] => (*escaped == byte, 2),
        [literal, ..] => (*literal == byte, 1),
    };
    if fits { Step::Matched(width) } else { Step::Failed }
}

/// Reads a class after its `[`. An unclosed class extends to the end of the pattern, as in Redis.
fn class_fits(class: &[u8], byte: u8) -> (bool, usize) {
    let negated = class.first() == Some(&b'^');
    let mut at = usize::from(negated);
    let mut fits = false;
    let width = loop {
        match &class[at..] {
            [] => break at + 1,
            [b'\\', escaped, ..] => {
                fits |= *escaped == byte;
                at += 2;
            }
            [b']', ..] => break at + 2,
            [from, b'-', to, ..] => {
                let (low, high) = (from.min(to), from.max(to));
                fits |= (*low..=*high).contains(&byte);
                at += 3;
            }
            [literal, ..] => {
                fits |= *literal == byte;
                at += 1;
            }
        }
    };
    (fits != negated, width)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, text, expected) in [
            ("*", "", false),
            ("a*", "a", true),
            ("", "", true),
            ("", "a", false),
            ("h?llo", "hello", true),
            ("h*llo", "heeeello", true),
            ("h[ae]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-c]llo", "hbllo", true),
            ("h[c-a]llo", "hbllo", true),
            ("h\\*llo", "h*llo", true),
            ("h\\*llo", "hxllo", false),
            ("*ab*cd*", "xxabyycdzz", true),
            ("*ab*cd", "xxabyycdzz", false),
            ("[ab", "a", true),
            ("a[", "a[", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn many_stars_take_bounded_time() {
        let pattern = "a*".repeat(1000) + "b";
        assert!(!matches(pattern.as_bytes(), "a".repeat(20_000).as_bytes()));
    }
}
