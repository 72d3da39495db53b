//! Keys and families as reports show them.

use hob_schema::{Catalog, FamilyId, quoted};

const MAX_KEY_CHARS: usize = 200;

/// `chat.online`
pub(crate) fn family_name(catalog: &Catalog, id: FamilyId) -> String {
    format!("{}.{}", catalog.schema(id).name, catalog.family(id).name)
}

/// A key for a report: escaped unless it is plain text, and shortened when it is long.
pub(crate) fn display_key(key: &[u8]) -> String {
    let text = String::from_utf8_lossy(key);
    let plain = text.chars().all(|char| !char.is_control() && char != '\u{fffd}')
        && text.chars().count() <= MAX_KEY_CHARS;
    if plain && !text.is_empty() { text.into_owned() } else { quoted(&text) }
}
