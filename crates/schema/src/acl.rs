//! ACL rules for Redis (C19): access to the declared keys and channels only.

use crate::catalog::Catalog;

/// Programs read, write, run scripts, publish and subscribe. Of the commands that affect the whole server, they need
/// only those that inspect it.
const COMMANDS: &str = "-@all +@read +@write +@scripting +@pubsub +@transaction +@connection -@dangerous \
                        +info +time +dbsize +memory|stats +cluster|slots +cluster|shards +cluster|nodes";

/// A line of an ACL file for a user that may access the declared keys and channels. The user has no password yet and cannot
/// log in.
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
