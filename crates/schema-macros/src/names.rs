//! Converts names of a schema file to Rust names.

use hob_schema::snake;
use proc_macro2::{Ident, Span};

const KEYWORDS: [&str; 38] = [
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "do", "dyn", "else",
    "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop", "macro",
    "match", "mod", "move", "mut", "pub", "ref", "return", "static", "struct", "trait", "true", "type",
    "use",
];

/// A function or argument name; keywords are written raw.
pub(crate) fn function(name: &str) -> Ident {
    let name = snake(name);
    if KEYWORDS.contains(&name.as_str()) {
        return Ident::new_raw(&name, Span::call_site());
    }
    Ident::new(&name, Span::call_site())
}

/// `conversationId` and `conversation_id` as `ConversationId`.
pub(crate) fn type_name(name: &str) -> Ident {
    let camel: String = snake(name)
        .split('_')
        .map(|word| {
            let mut chars = word.chars();
            chars
                .next()
                .map_or_else(String::new, |first| first.to_ascii_uppercase().to_string() + chars.as_str())
        })
        .collect();
    Ident::new(&camel, Span::call_site())
}

/// `recent` and `MAX_LEN` as `RECENT_MAX_LEN`.
pub(crate) fn constant(family: &str, what: &str) -> Ident {
    Ident::new(&format!("{}_{what}", family.to_ascii_uppercase()), Span::call_site())
}

/// Whether a word of `one_of` can be a variant.
pub(crate) fn is_variant(word: &str) -> bool {
    word.starts_with(|char: char| char.is_ascii_alphabetic())
        && word.chars().all(|char| char.is_ascii_alphanumeric() || char == '_')
}
