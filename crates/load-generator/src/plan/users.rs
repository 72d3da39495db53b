//! The users of a run type, from tables in the plan or from CSV.

use std::collections::BTreeMap;

use super::document::Scalar;

/// A row of values per user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct UserTable {
    pub(super) columns: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
}

impl UserTable {
    /// From tables, which must have the same fields.
    pub(super) fn from_tables(tables: &[BTreeMap<String, Scalar>]) -> Result<Self, String> {
        let Some(first) = tables.first() else { return Ok(Self::default()) };
        let columns: Vec<String> = first.keys().cloned().collect();
        let row = |table: &BTreeMap<String, Scalar>| {
            if table.keys().ne(columns.iter()) {
                return Err(format!("all users must have the same fields: {}", columns.join(", ")));
            }
            Ok(table.values().map(|value| value.0.clone()).collect())
        };
        let rows = tables.iter().map(row).collect::<Result<_, _>>()?;
        Ok(Self { columns, rows })
    }

    /// From CSV with column names in the first line.
    pub(super) fn from_csv(text: &str) -> Result<Self, String> {
        let mut lines = parse_csv(text)?.into_iter();
        let columns = lines.next().ok_or("the first line must name the columns")?;
        let rows: Vec<_> = lines.collect();
        if let Some(at) = rows.iter().position(|row| row.len() != columns.len()) {
            return Err(format!("row {} has {} values, expected {}", at + 1, rows[at].len(), columns.len()));
        }
        Ok(Self { columns, rows })
    }
}

fn parse_csv(text: &str) -> Result<Vec<Vec<String>>, String> {
    let mut lines = Vec::new();
    let (mut line, mut field, mut quoted) = (Vec::new(), String::new(), false);
    let mut characters = text.trim().chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '"' if quoted && characters.peek() == Some(&'"') => field.extend(characters.next()),
            '"' if quoted || field.is_empty() => quoted = !quoted,
            ',' if !quoted => line.push(std::mem::take(&mut field)),
            '\n' if !quoted => {
                line.push(std::mem::take(&mut field).trim_end_matches('\r').to_owned());
                lines.push(std::mem::take(&mut line));
            }
            character => field.push(character),
        }
    }
    if quoted {
        return Err("a quote is not closed".to_owned());
    }
    line.push(field);
    lines.push(line);
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_is_read_with_and_without_quotes() {
        let rows = UserTable::from_csv("name,note\nann,\"a, \"\"b\"\"\nc\"\r\nbob,\n").unwrap();
        assert_eq!(rows.columns, ["name", "note"]);
        assert_eq!(rows.rows, [["ann", "a, \"b\"\nc"], ["bob", ""]]);
        assert!(UserTable::from_csv("a,b\n1").is_err());
        assert!(UserTable::from_csv("a\n\"1").is_err());
    }
}
