//! Where the fields of a plan stand in its text, so that a mistake can be named with its line.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

/// Every value of a text with the path that leads to it (`scenario[0].step[2].request`), outer ones first.
#[derive(Debug, Default)]
pub(super) struct Outline(Vec<(String, Range<usize>)>);

impl Outline {
    pub(super) fn of_toml(text: &str) -> Self {
        let mut outline = Self::default();
        let (table, _) = DeTable::parse_recoverable(text);
        outline.enter_table("", table.get_ref());
        outline
    }

    pub(super) fn of_json(text: &str) -> Self {
        let mut outline = Self::default();
        Scan { text: text.as_bytes(), at: 0, outline: &mut outline }.value("");
        outline
    }

    /// Where a field begins, or the nearest one around it that is there.
    pub(super) fn start(&self, path: &str) -> usize {
        let mut wanted = path;
        loop {
            if let Some((_, span)) = self.0.iter().find(|(path, _)| path == wanted) {
                return span.start;
            }
            match wanted.rfind(['.', '[']) {
                Some(end) => wanted = &wanted[..end],
                None => return 0,
            }
        }
    }

    /// The innermost field around a place in the text.
    pub(super) fn path_at(&self, at: usize) -> &str {
        let around = self.0.iter().filter(|(_, span)| span.contains(&at));
        around.min_by_key(|(_, span)| span.len()).map_or("", |(path, _)| path)
    }

    fn enter_table(&mut self, path: &str, table: &DeTable<'_>) {
        for (key, value) in table {
            let inner = join(path, key.get_ref());
            // The key is where a person looks, and a table's own span may be only its header.
            let start = key.span().start.min(value.span().start);
            self.0.push((inner.clone(), start..value.span().end));
            self.enter(&inner, value.get_ref());
        }
    }

    fn enter(&mut self, path: &str, value: &DeValue<'_>) {
        match value {
            DeValue::Table(table) => self.enter_table(path, table),
            DeValue::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    let inner = format!("{path}[{index}]");
                    self.0.push((inner.clone(), item.span()));
                    self.enter(&inner, item.get_ref());
                }
            }
            _ => {}
        }
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// The line of a place in a text, the first being 1.
pub(super) fn line_at(text: &str, at: usize) -> usize {
    1 + text.as_bytes()[..at.min(text.len())].iter().filter(|byte| **byte == b'\n').count()
}

/// The place of a line and a column, both from 1, as JSON's parser tells them.
pub(super) fn place_of(text: &str, line: usize, column: usize) -> usize {
    let before: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    (before + column.saturating_sub(1)).min(text.len())
}

/// Walks over JSON that may be broken; what it cannot read ends the walk.
struct Scan<'a> {
    text: &'a [u8],
    at: usize,
    outline: &'a mut Outline,
}

impl Scan<'_> {
    fn value(&mut self, path: &str) -> Option<()> {
        let start = self.next_sign()?;
        let index = self.outline.0.len();
        self.outline.0.push((path.to_owned(), start..self.text.len()));
        match self.text[start] {
            b'{' => self.members(path)?,
            b'[' => self.items(path)?,
            b'"' => drop(self.string()?),
            _ => {
                self.at += self.text[start..].iter().take_while(|byte| !b",]} \t\r\n".contains(byte)).count();
            }
        }
        self.outline.0[index].1.end = self.at;
        Some(())
    }

    fn members(&mut self, path: &str) -> Option<()> {
        self.at += 1;
        loop {
            if self.text[self.next_sign()?] != b'"' {
                self.at += 1;
                return Some(());
            }
            let key = self.string()?;
            self.next_sign()?;
            self.at += 1;
            self.value(&join(path, &key))?;
            if self.text[self.next_sign()?] == b',' {
                self.at += 1;
            }
        }
    }

    fn items(&mut self, path: &str) -> Option<()> {
        self.at += 1;
        let mut index = 0;
        while self.text[self.next_sign()?] != b']' {
            self.value(&format!("{path}[{index}]"))?;
            if self.text[self.next_sign()?] == b',' {
                self.at += 1;
            }
            index += 1;
        }
        self.at += 1;
        Some(())
    }

    fn string(&mut self) -> Option<String> {
        let start = self.at + 1;
        let mut end = start;
        while *self.text.get(end)? != b'"' {
            end += if self.text[end] == b'\\' { 2 } else { 1 };
        }
        self.at = end + 1;
        Some(String::from_utf8_lossy(&self.text[start..end]).into_owned())
    }

    /// Skips white space; `None` at the end.
    fn next_sign(&mut self) -> Option<usize> {
        self.at += self.text.get(self.at..)?.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        (self.at < self.text.len()).then_some(self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_in_both_languages() {
        let toml = "name = 'x'\n[[scenario]]\nname = 'a'\n[[scenario.step]]\nname = 'home'\n";
        let outline = Outline::of_toml(toml);
        assert_eq!(line_at(toml, outline.start("scenario[0].step[0].name")), 5);
        assert_eq!(line_at(toml, outline.start("scenario[0].step[0].request")), 4);
        let json = "{\n \"name\": \"x\",\n \"scenario\": [\n  {\"step\": [{}, {\"name\": 1}]}\n ]\n}";
        let outline = Outline::of_json(json);
        assert_eq!(line_at(json, outline.start("scenario[0].step[1].name")), 4);
        assert_eq!(outline.path_at(json.find('1').unwrap()), "scenario[0].step[1].name");
    }

    #[test]
    fn broken_json_is_walked_as_far_as_it_goes() {
        for json in ["", "{", "[1,", "{\"a\"", "{\"a\":", "\"", "{\"a\": [1, {\"b\": \"\\", "]", "{1}"] {
            let _ = Outline::of_json(json);
        }
    }
}
