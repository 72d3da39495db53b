//! JSON as Lua values.

use std::borrow::Cow;

use mlua::{LuaString, Result, Table, Value};

use super::settings::Settings;
use crate::number::strtod;
use crate::script::library::{Call, Limits, MAX_DEPTH};

pub(super) fn decode(call: &Call<'_>, limits: &Limits, settings: Settings) -> Result<Value> {
    if call.count() != 1 {
        return Err(call.bad_argument(1, "expected 1 argument"));
    }
    let data = call.string(1)?;
    let data = data.as_bytes();
    if data.len() >= 2 && (data[0] == 0 || data[1] == 0) {
        return Err(call.error("JSON parser does not support UTF-16 or UTF-32"));
    }
    let mut decoder = Decoder { call, limits, settings, data: &data, at: 0, open: Vec::new(), values: 0 };
    limits.lifted(call.lua, || {
        let value = decoder.whole_value()?;
        match decoder.token() {
            Token { kind: TokenKind::End, .. } => Ok(value),
            other => Err(decoder.unexpected("the end", &other)),
        }
    })
}

/// A table of which a part was read. The tables that contain it are kept in a list and not on the stack, which could
/// overflow.
enum Open {
    /// With the number of items that were read.
    Array(Table, usize),
    /// With the key of the value that is read next.
    Object(Table, LuaString),
}

struct Decoder<'a> {
    call: &'a Call<'a>,
    limits: &'a Limits,
    settings: Settings,
    data: &'a [u8],
    at: usize,
    open: Vec<Open>,
    values: usize,
}

struct Token<'a> {
    kind: TokenKind<'a>,
    /// Where it begins.
    at: usize,
}

enum TokenKind<'a> {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    Text(Cow<'a, [u8]>),
    Number(f64),
    Boolean(bool),
    Null,
    Colon,
    Comma,
    End,
    Invalid(&'static str),
}

impl TokenKind<'_> {
    /// As the errors of Redis name it.
    fn name(&self) -> &'static str {
        match self {
            TokenKind::ObjectBegin => "T_OBJ_BEGIN",
            TokenKind::ObjectEnd => "T_OBJ_END",
            TokenKind::ArrayBegin => "T_ARR_BEGIN",
            TokenKind::ArrayEnd => "T_ARR_END",
            TokenKind::Text(_) => "T_STRING",
            TokenKind::Number(_) => "T_NUMBER",
            TokenKind::Boolean(_) => "T_BOOLEAN",
            TokenKind::Null => "T_NULL",
            TokenKind::Colon => "T_COLON",
            TokenKind::Comma => "T_COMMA",
            TokenKind::End => "T_END",
            TokenKind::Invalid(reason) => reason,
        }
    }
}

impl<'a> Decoder<'a> {
    fn whole_value(&mut self) -> Result<Value> {
        loop {
            let token = self.token();
            let mut complete = self.value(token)?;
            // A complete value may be the last one of the table that contains it, and so on.
            while let Some(value) = complete {
                let Some(table) = self.open.pop() else { return Ok(value) };
                complete = self.add(table, value)?;
            }
        }
    }

    /// A value, or `None` at the beginning of a table that is not empty.
    fn value(&mut self, token: Token<'a>) -> Result<Option<Value>> {
        self.values += 1;
        if self.values.is_multiple_of(64) {
            self.limits.check(self.call.lua, 0)?;
        }
        Ok(Some(match token.kind {
            TokenKind::Text(text) => Value::String(self.call.lua.create_string(text)?),
            TokenKind::Number(number) => Value::Number(number),
            TokenKind::Boolean(value) => Value::Boolean(value),
            TokenKind::Null => Value::NULL,
            TokenKind::ObjectBegin => {
                let table = self.table()?;
                let token = self.token();
                if !matches!(token.kind, TokenKind::ObjectEnd) {
                    self.begin_pair(table, token)?;
                    return Ok(None);
                }
                Value::Table(table)
            }
            TokenKind::ArrayBegin => {
                let table = self.table()?;
                let start = self.at;
                if !matches!(self.token().kind, TokenKind::ArrayEnd) {
                    self.at = start;
                    self.open.push(Open::Array(table, 0));
                    return Ok(None);
                }
                Value::Table(table)
            }
            _ => return Err(self.unexpected("value", &token)),
        }))
    }

    /// Adds a value to a table. Returns the table at its end.
    fn add(&mut self, table: Open, value: Value) -> Result<Option<Value>> {
        match table {
            Open::Array(table, items) => {
                table.raw_seti(items + 1, value)?;
                let next = self.token();
                match next.kind {
                    TokenKind::ArrayEnd => return Ok(Some(Value::Table(table))),
                    TokenKind::Comma => self.open.push(Open::Array(table, items + 1)),
                    _ => return Err(self.unexpected("comma or array end", &next)),
                }
            }
            Open::Object(table, key) => {
                table.raw_set(key, value)?;
                let next = self.token();
                match next.kind {
                    TokenKind::ObjectEnd => return Ok(Some(Value::Table(table))),
                    TokenKind::Comma => {
                        let token = self.token();
                        self.begin_pair(table, token)?;
                    }
                    _ => return Err(self.unexpected("comma or object end", &next)),
                }
            }
        }
        Ok(None)
    }

    /// Reads a key and its colon.
    fn begin_pair(&mut self, table: Table, token: Token<'a>) -> Result<()> {
        let TokenKind::Text(key) = token.kind else {
            return Err(self.unexpected("object key string", &token));
        };
        let key = self.call.lua.create_string(key)?;
        let colon = self.token();
        if !matches!(colon.kind, TokenKind::Colon) {
            return Err(self.unexpected("colon", &colon));
        }
        self.open.push(Open::Object(table, key));
        Ok(())
    }

    fn table(&mut self) -> Result<Table> {
        let depth = self.open.len() + 1;
        let max_depth = MAX_DEPTH.min(self.settings.decode_max_depth.unsigned_abs() as usize);
        if depth > max_depth {
            let at = self.at;
            return Err(self
                .call
                .error(format!("Found too many nested data structures ({depth}) at character {at}")));
        }
        self.call.lua.create_table()
    }

    fn unexpected(&self, expected: &str, token: &Token<'_>) -> mlua::Error {
        let (found, at) = (token.kind.name(), token.at + 1);
        self.call.error(format!("Expected {expected} but found {found} at character {at}"))
    }

    /// The byte at `at`; 0 at the end.
    fn byte(&self, at: usize) -> u8 {
        self.data.get(at).copied().unwrap_or(0)
    }

    fn token(&mut self) -> Token<'a> {
        while matches!(self.byte(self.at), b' ' | b'\t' | b'\n' | b'\r') {
            self.at += 1;
        }
        let at = self.at;
        let kind = match self.byte(at) {
            b'{' => TokenKind::ObjectBegin,
            b'}' => TokenKind::ObjectEnd,
            b'[' => TokenKind::ArrayBegin,
            b']' => TokenKind::ArrayEnd,
            b',' => TokenKind::Comma,
            b':' => TokenKind::Colon,
            // As in Redis, a NUL ends the text.
            0 => return Token { kind: TokenKind::End, at },
            b'"' => {
                let kind = self.text();
                // An error in a text is reported where it was found.
                let at = if matches!(kind, TokenKind::Invalid(_)) { self.at } else { at };
                return Token { kind, at };
            }
            _ => return Token { kind: self.word(), at },
        };
        self.at += 1;
        Token { kind, at }
    }

    /// A number, `true`, `false` or `null`.
    fn word(&mut self) -> TokenKind<'a> {
        let rest = &self.data[self.at..];
        let (kind, length) = match self.byte(self.at) {
            b'-' | b'0'..=b'9' if !self.settings.decode_invalid_numbers && is_invalid_number(rest) => {
                return TokenKind::Invalid("invalid number");
            }
            b'-' | b'0'..=b'9' => match strtod(rest) {
                Some((number, length)) => (TokenKind::Number(number), length),
                None => return TokenKind::Invalid("invalid number"),
            },
            _ if rest.starts_with(b"true") => (TokenKind::Boolean(true), 4),
            _ if rest.starts_with(b"false") => (TokenKind::Boolean(false), 5),
            _ if rest.starts_with(b"null") => (TokenKind::Null, 4),
            b'i' | b'I' | b'n' | b'N' | b'+'
                if self.settings.decode_invalid_numbers && is_invalid_number(rest) =>
            {
                match strtod(rest) {
                    Some((number, length)) => (TokenKind::Number(number), length),
                    None => return TokenKind::Invalid("invalid number"),
                }
            }
            _ => return TokenKind::Invalid("invalid token"),
        };
        self.at += length;
        kind
    }

    fn text(&mut self) -> TokenKind<'a> {
        self.at += 1;
        let start = self.at;
        let plain = self.data[start..].iter().take_while(|byte| !matches!(byte, b'"' | b'\\' | 0)).count();
        self.at += plain;
        let mut text = Cow::Borrowed(&self.data[start..self.at]);
        loop {
            match self.byte(self.at) {
                b'"' => break,
                0 => return TokenKind::Invalid("unexpected end of string"),
                b'\\' => {
                    if let Err(reason) = self.escape(text.to_mut()) {
                        return TokenKind::Invalid(reason);
                    }
                }
                byte => {
                    text.to_mut().push(byte);
                    self.at += 1;
                }
            }
        }
        self.at += 1;
        TokenKind::Text(text)
    }

    fn escape(&mut self, text: &mut Vec<u8>) -> std::result::Result<(), &'static str> {
        let byte = match self.byte(self.at + 1) {
            byte @ (b'"' | b'\\' | b'/') => byte,
            b'b' => 0x08,
            b't' => b'\t',
            b'n' => b'\n',
            b'f' => 0x0c,
            b'r' => b'\r',
            b'u' => {
                let (character, length) = self.unicode().ok_or("invalid unicode escape code")?;
                text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                self.at += length;
                return Ok(());
            }
            _ => return Err("invalid escape code"),
        };
        text.push(byte);
        self.at += 2;
        Ok(())
    }

    /// The character of an escape such as `\u00e9`, or of a surrogate pair of escapes, and their length.
    fn unicode(&self) -> Option<(char, usize)> {
        let unit = self.code_unit(self.at)?;
        if let Some(character) = char::from_u32(unit) {
            return Some((character, 6));
        }
        let low = self.code_unit(self.at + 6)?;
        let pair = [u16::try_from(unit).ok()?, u16::try_from(low).ok()?];
        let character = char::decode_utf16(pair).next()?.ok()?;
        Some((character, 12))
    }

    /// The number in one such escape.
    fn code_unit(&self, at: usize) -> Option<u32> {
        let digits = self.data.get(at..at + 6)?.strip_prefix(b"\\u")?;
        let digit = |value: u32, byte: &u8| Some(value << 4 | char::from(*byte).to_digit(16)?);
        digits.iter().try_fold(0, digit)
    }
}

/// Whether this is a number for `strtod`, but not in JSON.
fn is_invalid_number(text: &[u8]) -> bool {
    if text.first() == Some(&b'+') {
        return true;
    }
    match text.strip_prefix(b"-").unwrap_or(text) {
        [b'0', next, ..] => matches!(next, b'x' | b'X' | b'0'..=b'9'),
        text => text
            .get(..3)
            .is_some_and(|word| word.eq_ignore_ascii_case(b"inf") || word.eq_ignore_ascii_case(b"nan")),
    }
}
