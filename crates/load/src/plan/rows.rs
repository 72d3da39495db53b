//! The users that a run logs in with: tables written in the plan, or CSV.

use std::collections::BTreeMap;

use super::source::Scalar;

/// Rows of values under named columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rows {
    pub(super) columns: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
}

impl Rows {
    /// From tables, all with the same fields.
    pub(super) fn from_tables(tables: &[BTreeMap<String, Scalar>]) -> Result<Self, String> {
        let Some(first) = tables.first() else { return Ok(Self::default()) };
        let columns: Vec<String> = first.keys().cloned().collect();
        let row = |table: &BTreeMap<String, Scalar>| {
            if table.keys().ne(columns.iter()) {
                return Err(format!("all users have the same fields, here {}", columns.join(", ")));
            }
            Ok(table.values().map(|value| value.0.clone()).collect())
        };
        let rows = tables.iter().map(row).collect::<Result<_, _>>()?;
        Ok(Self { columns, rows })
    }

    /// From CSV whose first line names the columns.
    pub(super) fn from_csv(text: &str) -> Result<Self, String> {
        let mut lines = parse_csv(text)?.into_iter();
        let columns = lines.next().ok_or("the first line names the columns")?;
        let rows: Vec<_> = lines.collect();
        if let Some(at) = rows.iter().position(|row| row.len() != columns.len()) {
            return Err(format!("row {} has {} values, not {}", at + 1, rows[at].len(), columns.len()));
        }
        Ok(Self { columns, rows })
    }
}

fn parse_csv(text: &str) -> Result<Vec<Vec<String>>, String> {
    let mut lines = Vec::new();
    let (mut line, mut field, mut quoted) = (Vec::new(), String::new(), false);
    let mut signs = text.trim().chars().peekable();
    while let Some(sign) = signs.next() {
        match sign {
            '"' if quoted && signs.peek() == Some(&'"') => field.extend(signs.next()),
            '"' if quoted || field.is_empty() => quoted = !quoted,
            ',' if !quoted => line.push(std::mem::take(&mut field)),
            '\n' if !quoted => {
                line.push(std::mem::take(&mut field).trim_end_matches('\r').to_owned());
                lines.push(std::mem::take(&mut line));
            }
            sign => field.push(sign),
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
    fn csv_reads_with_and_without_quotes() {
        let rows = Rows::from_csv("name,note\nann,\"a, \"\"b\"\"\nc\"\r\nbob,\n").unwrap();
        assert_eq!(rows.columns, ["name", "note"]);
        assert_eq!(rows.rows, [["ann", "a, \"b\"\nc"], ["bob", ""]]);
        assert!(Rows::from_csv("a,b\n1").is_err());
        assert!(Rows::from_csv("a\n\"1").is_err());
    }
}
