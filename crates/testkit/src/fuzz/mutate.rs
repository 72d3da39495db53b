//! Nearly valid documents, and documents that are expensive to parse. Each follows from a number, so that a failure can
//! be reproduced.

/// Tokens of the formats that users write.
const TOKENS: [&str; 56] = [
    ",",
    ",,",
    ":",
    ": ",
    "[",
    "]",
    "{",
    "}",
    "[]",
    "{}",
    "[[",
    "]]",
    "(",
    ")",
    "\"",
    "'",
    "\"\"\"",
    "'''",
    "\\",
    "\\u",
    "\\ud800",
    "&a ",
    "*a",
    "<<: *a",
    "<<",
    "!!binary ",
    "!x ",
    "- ",
    "? ",
    "| ",
    ">-\n",
    "---\n",
    "...\n",
    "%YAML 9\n",
    "#",
    "\n",
    "\t",
    " ",
    "\r\n",
    "=",
    "==",
    ".",
    "..",
    "$",
    "${",
    "$.a[*]",
    "..*",
    "0x",
    "-",
    "1e999",
    "1e-999",
    "NaN",
    "99999999999999999999",
    "null",
    "\u{0}",
    "\u{feff}é",
];

/// Prefixes that open one more level of nesting each time they are repeated.
const NESTED: [&str; 18] = [
    "[",
    "{",
    "{\"a\":",
    "[{\"a\":[",
    "{a: ",
    "(",
    "a.",
    "- ",
    "? ",
    "&a [",
    "!a [",
    "a = [",
    "a = {b = ",
    "[a.",
    "$[",
    "${",
    "\"",
    "\\",
];

/// Length of the expensive documents, in bytes.
const LONG: usize = 200 << 10;

/// A deterministic pseudo-random generator (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % bound.max(1) as u64) as usize
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }
}

/// The document with this number: first the valid ones, then the expensive ones, then mutations.
pub(super) fn document(number: usize, valid: &[&str]) -> String {
    if let Some(document) = valid.get(number) {
        return (*document).to_owned();
    }
    let number = number - valid.len();
    if let Some(document) = expensive(number) {
        return document;
    }
    let mut numbers = Numbers(number as u64);
    let mut bytes = numbers.one(valid).as_bytes().to_vec();
    for _ in 0..=numbers.below(4) {
        mutate(&mut bytes, &mut numbers);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn mutate(bytes: &mut Vec<u8>, numbers: &mut Numbers) {
    let at = numbers.below(bytes.len() + 1);
    let end = (at + 1 + numbers.below(12)).min(bytes.len()).max(at);
    match numbers.below(8) {
        0 => drop(bytes.drain(at..end)),
        1 => {
            let copy = bytes[at..end].to_vec();
            bytes.splice(at..at, copy);
        }
        2 => {
            let moved: Vec<u8> = bytes.drain(at..end).collect();
            let to = numbers.below(bytes.len() + 1);
            bytes.splice(to..to, moved);
        }
        3 if at < bytes.len() => bytes[at] = numbers.below(256) as u8,
        4 => bytes.truncate(at),
        5 => {
            let nested = numbers.one(&NESTED).repeat(1 << numbers.below(12));
            bytes.splice(at..at, nested.into_bytes());
        }
        6 => {
            let token = numbers.one(&TOKENS);
            bytes.splice(at..end, token.bytes());
        }
        _ => {
            let token = numbers.one(&TOKENS);
            bytes.splice(at..at, token.bytes());
        }
    }
}

/// Documents whose parsing cost could grow with the square of their length, or faster.
fn expensive(number: usize) -> Option<String> {
    let long = |piece: &str| piece.repeat(LONG / piece.len());
    let half = |piece: &str| piece.repeat(LONG / piece.len() / 2);
    let levels = |of: &dyn Fn(usize) -> String| (1..12).map(of).collect::<String>();
    let documents: [&dyn Fn() -> String; 10] = [
        // A long key that is part of the path of many values.
        &|| format!("{{\"{}\":[{}0]}}", half("k"), half("0,")),
        &|| format!("{} = [{}0]", half("k"), half("0,")),
        &|| format!("{}: [{}0]", "k".repeat(1000), half("0,")),
        &|| format!("[{}]\n{}", half("k"), half("a\n")),
        // Aliases that expand exponentially, as lists and as merged maps.
        &|| {
            format!(
                "a0: &a0 [x]\n{}",
                levels(&|n| format!("a{n}: &a{n} [{}]\n", format!("*a{},", n - 1).repeat(10)))
            )
        },
        &|| {
            format!(
                "a0: &a0 {{x: y}}\n{}",
                levels(&|n| format!("a{n}: &a{n} {{<<: [{}]}}\n", format!("*a{},", n - 1).repeat(10)))
            )
        },
        &|| format!("&a [{}*a]", half("*a,")),
        // One error per line, and one value per line.
        &|| long("=\n"),
        &|| (0..LONG / 12).map(|n| format!("k{n}: {n}\n")).collect(),
        &|| (0..LONG / 12).map(|n| format!("k{n} = {n}\n")).collect(),
    ];
    let nested = NESTED.iter().chain(&TOKENS);
    match number.checked_sub(documents.len()) {
        None => Some(documents[number]()),
        Some(number) => nested.copied().nth(number).map(long),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn documents_are_deterministic_and_differ() {
        let valid =
            ["name = \"shop\"\nload = { rate = 100, for = \"30s\" }\n", "{\"name\": [1, 2, {\"a\": null}]}"];
        let all: HashSet<String> = (0..1000).map(|number| document(number, &valid)).collect();
        // Short documents that are truncated at the same position are equal.
        assert!(all.len() > 900, "{}", all.len());
        assert!((0..1000).all(|number| all.contains(&document(number, &valid))));
        assert!(all.iter().all(|document| document.len() <= LONG + (64 << 10)));
    }
}
