//! Typed keys from a schema file at compile time.

mod expand;
mod names;

use proc_macro::TokenStream;

/// Generates typed keys from a schema file.
///
/// ```
/// mod keys {
///     hob_schema_macros::keys!("schemas/chat.toml");
/// }
/// use hob_schema::Layout;
/// use keys::{ConversationId, Keys};
///
/// let keys = Keys::new(Layout::Tagged);
/// let conversation = ConversationId::new("conv123").unwrap();
/// assert_eq!(keys.recent(&conversation).to_string(), "messages:{conv123}:recent");
/// assert_eq!(Keys::RECENT_MAX_LEN, 100);
/// ```
///
/// The path is relative to the folder of the crate's `Cargo.toml` or any folder above it, so the same line works in a
/// workspace and in a single crate. The crate needs `hob-schema` and `hob-store`. Each `[key.NAME]` becomes a method of
/// `Keys` whose arguments are the ids of its pattern, each `[channel.NAME]` a method `NAME_channel`. Ids are
/// newtypes that are checked when they are made.
///
/// An error in the file is a compile error with its line and column:
///
/// ```compile_fail
/// hob_schema_macros::keys!("schemas/no_such_file.toml");
/// ```
#[proc_macro]
pub fn keys(input: TokenStream) -> TokenStream {
    expand::keys(input.into()).into()
}
