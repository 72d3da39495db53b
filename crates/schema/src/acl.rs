//! ACL rules for Redis, from what is declared (C19): the keys and channels that there are, and nothing else.

use crate::catalog::Catalog;

/// What programs over a schema do: read, write, run scripts, publish and listen. Not what concerns the server as a whole,
/// except to look at it.
const COMMANDS: &str = "-@all +@read +@write +@scripting +@pubsub +@transaction +@connection -@dangerous \
                        +info +time +dbsize +memory|stats +cluster|slots +cluster|shards +cluster|nodes";

/// A line of an ACL file: a user that may touch what the schemas declare. It has no password yet, and so lets nobody in.
#[must_use]
pub fn acl(catalog: &Catalog, user: &str) -> String {
    let mut words =
        vec!["user".to_owned(), user.to_owned(), "on resetpass resetkeys resetchannels".to_owned()];
    for space in catalog.spaces() {
        let globs = (0..space.schema().families.len()).map(|family| space.glob(family));
        words.extend(globs.map(|glob| format!("~{}", String::from_utf8_lossy(&glob))));
        let globs = (0..space.schema().channels.len()).map(|channel| space.channel_glob(channel));
        words.extend(globs.map(|glob| format!("&{}", String::from_utf8_lossy(&glob))));
    }
    words.push(COMMANDS.to_owned());
    words.join(" ") + "\n"
}
