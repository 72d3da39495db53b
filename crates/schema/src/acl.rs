//! ACL rules for Redis (C19): access to the declared keys and channels only.

use crate::catalog::Catalog;
use crate::model::Content;

/// Programs read, write, run scripts, publish and subscribe. Of the commands that affect the whole server, they need
/// only those that inspect it.
const COMMANDS: &str = "-@all +@read +@write +@scripting +@pubsub +@transaction +@connection -@dangerous \
                        +info +time +dbsize +memory|stats +cluster|slots +cluster|shards +cluster|nodes";

/// The commands for the types of modules, without those that newer versions of the modules added: Redis refuses a rule with an
/// unknown command. Before version 8 they are in none of the categories of [`COMMANDS`].
const MODULE_COMMANDS: &[(&str, &[&str])] = &[
    (
        "ReJSON-RL",
        &[
            "json.arrappend",
            "json.arrindex",
            "json.arrinsert",
            "json.arrlen",
            "json.arrpop",
            "json.arrtrim",
            "json.clear",
            "json.del",
            "json.forget",
            "json.get",
            "json.mget",
            "json.numincrby",
            "json.nummultby",
            "json.objkeys",
            "json.objlen",
            "json.resp",
            "json.set",
            "json.strappend",
            "json.strlen",
            "json.toggle",
            "json.type",
        ],
    ),
    (
        "TSDB-TYPE",
        &[
            "ts.add",
            "ts.alter",
            "ts.create",
            "ts.createrule",
            "ts.decrby",
            "ts.del",
            "ts.deleterule",
            "ts.get",
            "ts.incrby",
            "ts.info",
            "ts.madd",
            "ts.range",
            "ts.revrange",
        ],
    ),
    ("MBbloom--", &["bf.add", "bf.exists", "bf.info", "bf.insert", "bf.madd", "bf.mexists", "bf.reserve"]),
    (
        "MBbloomCF",
        &[
            "cf.add",
            "cf.addnx",
            "cf.count",
            "cf.del",
            "cf.exists",
            "cf.info",
            "cf.insert",
            "cf.insertnx",
            "cf.mexists",
            "cf.reserve",
        ],
    ),
    ("CMSk-TYPE", &["cms.incrby", "cms.info", "cms.initbydim", "cms.initbyprob", "cms.merge", "cms.query"]),
    ("TopK-TYPE", &["topk.add", "topk.incrby", "topk.info", "topk.list", "topk.query", "topk.reserve"]),
    (
        "TDIS-TYPE",
        &[
            "tdigest.add",
            "tdigest.cdf",
            "tdigest.create",
            "tdigest.info",
            "tdigest.max",
            "tdigest.merge",
            "tdigest.min",
            "tdigest.quantile",
            "tdigest.reset",
        ],
    ),
];

/// A line of an ACL file for a user that may access the declared keys and channels. The user has no password yet and cannot
/// log in.
#[must_use]
pub fn acl(catalog: &Catalog, user: &str) -> String {
    let spaces = || catalog.spaces().iter();
    let keys = spaces().flat_map(|space| (0..space.schema().families.len()).map(|family| space.glob(family)));
    let channels = spaces()
        .flat_map(|space| (0..space.schema().channels.len()).map(|channel| space.channel_glob(channel)));
    let mut words =
        vec!["user".to_owned(), user.to_owned(), "on resetpass resetkeys resetchannels".to_owned()];
    words.extend(patterns('~', keys));
    words.extend(patterns('&', channels));
    words.push(COMMANDS.to_owned());
    words.extend(module_commands(catalog).into_iter().map(|command| format!("+{command}")));
    words.join(" ") + "\n"
}

/// The commands for the types of modules that the schemas declare.
fn module_commands(catalog: &Catalog) -> Vec<&'static str> {
    let families = || catalog.spaces().iter().flat_map(|space| &space.schema().families);
    let declared = |module: &str| {
        families().any(|family| {
            matches!(&family.content, Content::Module(name) if name == module)
                || family.also.iter().any(|name| name == module)
        })
    };
    let known = MODULE_COMMANDS.iter().filter(|(module, _)| declared(module));
    known.flat_map(|(_, commands)| commands.iter().copied()).collect()
}

/// Each glob once. Redis refuses other patterns beside `*`.
fn patterns(sign: char, globs: impl Iterator<Item = Vec<u8>>) -> Vec<String> {
    let mut patterns: Vec<String> = Vec::new();
    for glob in globs {
        let pattern = format!("{sign}{}", acl_word(&glob));
        if glob == b"*" {
            return vec![pattern];
        }
        if !patterns.contains(&pattern) {
            patterns.push(pattern);
        }
    }
    patterns
}

/// A rule ends at a space and has no escape for it, so a `?` stands for each byte of it, and of characters that cannot be
/// printed.
fn acl_word(glob: &[u8]) -> String {
    let hidden = |char: char| char.is_whitespace() || char.is_control() || char == '\u{fffd}';
    let word = |char: char| if hidden(char) { "?".repeat(char.len_utf8()) } else { char.to_string() };
    String::from_utf8_lossy(glob).chars().map(word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_of_a_space_becomes_a_question_mark() {
        for (glob, word) in [("a b:*", "a?b:*"), ("a\u{a0}b", "a??b"), ("\u{2003}", "???"), ("été", "été")]
        {
            assert_eq!(acl_word(glob.as_bytes()), word);
        }
    }
}
