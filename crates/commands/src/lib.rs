//! The Redis commands that Hob knows: for each, its name, number of arguments, effects, and which arguments are keys.
//! Also the hash slot and the type of a key.
//!
//! The engine implements exactly these commands. A client of a Redis Cluster uses the table to find the node that a
//! command must be sent to.
//!
//! ```
//! use hob_commands::{ListCommand, command_keys, key_slot, resolve};
//!
//! let words: &[&[u8]] = &[b"LPUSH", b"{queue}:1", b"job"];
//! assert_eq!(resolve(words).unwrap().id, ListCommand::LPush.into());
//! let keys: Vec<&[u8]> = command_keys(words).unwrap().collect();
//! assert_eq!(keys, [b"{queue}:1"]);
//! assert_eq!(key_slot(keys[0]), key_slot(b"queue"));
//! ```

mod categories;
mod command;
mod hash;
mod inline;
mod key_type;
mod lookup;
mod slot;
mod table;

pub use command::{Command, Flags, Keys};
pub use hash::FnvHasher;
pub use inline::inline_words;
pub use key_type::KeyType;
pub use lookup::{Entry, Unresolved, command_keys, entries, lookup, resolve};
pub use slot::{SLOTS, key_slot};
pub use table::{
    CommandId, FAMILIES, Family, HashCommand, KeyCommand, ListCommand, PubSubCommand, ScriptCommand,
    ServerCommand, SetCommand, SortedSetCommand, StreamCommand, StringCommand, TransactionCommand,
};
