//! The schemas of the services declare every key and channel of the contract, byte for byte.

use hob_schema::{Catalog, Layout, Schema};

use crate::{SERVICES, load_schema};

/// Every line of `tests/data/contract.txt` is a contract id and the keys or channels that it names.
#[test]
fn every_contract_id_that_names_a_key_or_channel_is_declared() {
    let schemas: Vec<Schema> = SERVICES.iter().map(|name| load_schema(name)).collect();
    let mut missing = Vec::new();
    for line in include_str!("../data/contract.txt").lines().filter(|line| !line.starts_with('#')) {
        let (id, patterns) = line.split_once(' ').unwrap();
        for pattern in patterns.split(", ") {
            let found = schemas.iter().any(|schema| {
                let keys = schema.families.iter().map(|family| (&family.contract, &family.pattern.text));
                let channels =
                    schema.channels.iter().map(|channel| (&channel.contract, &channel.pattern.text));
                keys.chain(channels)
                    .any(|(ids, text)| ids.iter().any(|declared| declared == id) && text == pattern)
            });
            if !found {
                missing.push(format!("{id} {pattern}"));
            }
        }
    }
    assert_eq!(missing, [""; 0]);
}

#[test]
fn service_schemas_can_share_a_server() {
    for layout in [Layout::Plain, Layout::Tagged] {
        let schemas = SERVICES.iter().map(|name| load_schema(name)).collect();
        Catalog::new(schemas, layout).unwrap();
    }
}

/// Keys in the spelling of the documents match the right family, with the right ids.
#[test]
fn documented_keys_match_byte_for_byte() {
    let catalog =
        Catalog::new(SERVICES.iter().map(|name| load_schema(name)).collect(), Layout::Plain).unwrap();
    let mut keys = 0;
    for line in include_str!("../data/keys.txt").lines().filter(|line| !line.starts_with('#')) {
        let mut columns = line.split('\t');
        let (family, key) = (columns.next().unwrap(), columns.next().unwrap());
        let ids: Vec<&str> = columns.collect();
        let found = catalog.find(key.as_bytes()).unwrap_or_else(|| panic!("{key} matches no family"));
        let name = format!("{}.{}", catalog.schema(found.family).name, catalog.family(found.family).name);
        assert_eq!(
            (name.as_str(), &found.ids[..]),
            (family, &ids.iter().map(|id| (*id).into()).collect::<Vec<_>>()[..])
        );
        let built = catalog.spaces()[found.family.schema].key(found.family.family, &ids, None);
        assert_eq!(built, key);
        keys += 1;
    }
    assert!(keys > 40, "{keys}");
}

/// C9: the key of a conversation named "total" would be the badge count.
#[test]
fn total_is_not_a_conversation_id() {
    let chat = load_schema("chat");
    assert!(chat.id("conversationId").unwrap().check("total").is_err());
    let catalog = Catalog::new(vec![chat], Layout::Plain).unwrap();
    let found = catalog.find(b"unread:user1:total").unwrap();
    assert_eq!(catalog.family(found.family).name, "unread_total");
}

#[test]
fn keys_of_one_monitor_share_a_slot_with_its_schedule() {
    let space = hob_schema::Keyspace::new(load_schema("uptime"), Layout::Tagged);
    let shard = space.shard_of("monitor_123");
    let family = |name: &str| space.schema().families.iter().position(|family| family.name == name).unwrap();
    let number = shard.number();
    assert_eq!(space.key(family("schedule"), &[], Some(shard)), format!("monitor:schedule:{{{number}}}"));
    assert_eq!(
        space.key(family("status"), &["monitor_123"], None),
        format!("monitor:status:{{{number}}}:monitor_123")
    );
}
