//! Names of a schema file as names of another language.

use std::collections::BTreeMap;

use super::{Language, NameClash};
use crate::model::Schema;
use crate::parse::snake;

/// Words that name neither a method nor an argument. Arguments of Go also must not hide what a method uses.
const PYTHON: &[&str] = &[
    "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del", "elif", "else",
    "except", "finally", "for", "from", "global", "if", "import", "in", "is", "lambda", "match", "nonlocal",
    "not", "or", "pass", "raise", "return", "self", "shard", "str", "try", "type", "while", "with", "yield",
];
const TYPESCRIPT: &[&str] = &[
    "arguments",
    "await",
    "break",
    "case",
    "catch",
    "class",
    "const",
    "continue",
    "debugger",
    "default",
    "delete",
    "do",
    "else",
    "enum",
    "eval",
    "export",
    "extends",
    "false",
    "finally",
    "for",
    "function",
    "if",
    "implements",
    "import",
    "in",
    "instanceof",
    "interface",
    "let",
    "new",
    "null",
    "package",
    "part",
    "private",
    "protected",
    "public",
    "return",
    "shard",
    "static",
    "super",
    "switch",
    "this",
    "throw",
    "true",
    "try",
    "typeof",
    "undefined",
    "var",
    "void",
    "while",
    "with",
    "yield",
];
const GO: &[&str] = &[
    "break",
    "case",
    "chan",
    "const",
    "continue",
    "default",
    "defer",
    "else",
    "fallthrough",
    "for",
    "func",
    "go",
    "goto",
    "if",
    "import",
    "interface",
    "k",
    "map",
    "name",
    "ok",
    "package",
    "range",
    "return",
    "select",
    "shard",
    "strconv",
    "string",
    "struct",
    "switch",
    "type",
    "var",
];

/// Types that the generated code uses. A type of a schema must not hide them.
const TYPESCRIPT_TYPES: &[&str] =
    &["Array", "BigInt", "Error", "JSON", "Number", "Object", "RangeError", "Readonly", "Record", "String"];
const PYTHON_TYPES: &[&str] = &[
    "Any",
    "Dict",
    "Final",
    "List",
    "Literal",
    "Mapping",
    "NamedTuple",
    "NewType",
    "Optional",
    "Tuple",
    "TypedDict",
    "Union",
];

/// Words that Go writes in capitals.
const INITIALISMS: &[&str] = &["api", "http", "id", "ip", "json", "ttl", "url", "uuid"];

/// `unread_total` as `UnreadTotal`.
pub(super) fn pascal(name: &str) -> String {
    snake(name).split('_').map(capital).collect()
}

/// `unread_total` as `unreadTotal`.
pub(super) fn camel(name: &str) -> String {
    let name = snake(name);
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    first + &words.map(capital).collect::<String>()
}

/// `unread_total` as `UNREAD_TOTAL`.
pub(super) fn screaming(name: &str) -> String {
    snake(name).to_ascii_uppercase()
}

/// `user_id` as `UserID`.
pub(super) fn exported(name: &str) -> String {
    snake(name).split('_').map(go_word).collect()
}

/// `user_id` as `userID`.
pub(super) fn unexported(name: &str) -> String {
    let name = snake(name);
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    first + &words.map(go_word).collect::<String>()
}

fn go_word(word: &str) -> String {
    if INITIALISMS.contains(&word) { word.to_ascii_uppercase() } else { capital(word) }
}

fn capital(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map_or_else(String::new, |first| first.to_ascii_uppercase().to_string() + chars.as_str())
}

/// The name of an argument: not a keyword.
pub(super) fn argument(name: &str, language: Language) -> String {
    let (name, reserved) = match language {
        Language::TypeScript => (camel(name), TYPESCRIPT),
        Language::Python => (snake(name), PYTHON),
        Language::Go => (unexported(name), GO),
    };
    if reserved.contains(&name.as_str()) { name + "_" } else { name }
}

/// The name of a type: not one that the generated code uses.
pub(super) fn type_name(name: &str, language: Language) -> String {
    let (name, reserved) = match language {
        Language::TypeScript => (pascal(name), TYPESCRIPT_TYPES),
        Language::Python => (pascal(name), PYTHON_TYPES),
        // What Go predeclares is in lower case.
        Language::Go => (exported(name), &[][..]),
    };
    if reserved.contains(&name.as_str()) { name + "_" } else { name }
}

/// Whether a text is a name in all three languages.
pub(super) fn is_identifier(text: &str) -> bool {
    text.starts_with(|char: char| char.is_ascii_alphabetic())
        && text.chars().all(|char| char.is_ascii_alphanumeric() || char == '_')
        && !PYTHON.contains(&text)
}

/// Where a name must be unique.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Scope {
    Module,
    Keys,
}

/// The names of a generated file. Remembers the first that is used twice.
pub(super) struct Names {
    file: String,
    language: Language,
    used: BTreeMap<(Scope, String), String>,
    clash: Option<NameClash>,
}

impl Names {
    pub(super) fn new(schema: &Schema, language: Language) -> Names {
        Names { file: schema.file.clone(), language, used: BTreeMap::new(), clash: None }
    }

    /// Names that every file has.
    pub(super) fn reserve(&mut self, scope: Scope, names: &[&str]) {
        for name in names {
            self.used.insert((scope, (*name).to_owned()), "a name of every generated file".to_owned());
        }
    }

    /// Takes a name for `what` and returns it.
    pub(super) fn take(&mut self, scope: Scope, name: String, what: &str) -> String {
        let second = what.to_owned();
        match self.used.insert((scope, name.clone()), second.clone()) {
            Some(first) if self.clash.is_none() => {
                let (file, language) = (self.file.clone(), self.language);
                self.clash = Some(NameClash { file, language, name: name.clone(), first, second });
            }
            _ => {}
        }
        name
    }

    pub(super) fn clash(self) -> Option<NameClash> {
        self.clash
    }
}
