//! Removes presence that belongs to no node.
//!
//! The users of a dead node are found through its index. One master of a Cluster can lose that index or the list of
//! nodes, while the users in it stay online on other masters. So after a data loss, when all live nodes have renewed
//! their leases, all presence keys are scanned.

use hob_database::Database;
use hob_schema::Catalog;
use hob_store::{Store, cmd};

use crate::Error;
use crate::hub::node::{Node, save_last_seen};
use crate::keys::{Incarnation, Keys, UserId};
use crate::store::presence::PresenceStore;

/// The `COUNT` of `SCAN`.
const SCAN_COUNT: u32 = 500;

/// Removes the sockets of incarnations that are neither live nor waiting to be swept. Returns how many users were
/// affected.
pub(crate) async fn purge_orphans(
    store: &Store,
    keys: &Keys,
    node: &Node,
    presences: &PresenceStore,
    database: &Database,
) -> Result<usize, Error> {
    let catalog = Catalog::new(vec![keys.space().schema().clone()], keys.space().layout())
        .map_err(|clash| Error::Config(clash.to_string()))?;
    let mut purged = 0;
    for master in store.masters().await? {
        let mut scan = KeyScan::new(&master, keys, "node_users")?;
        while let Some(page) = scan.next().await? {
            let incarnations = page.iter().filter_map(|key| Incarnation::new(id(&catalog, key)?).ok());
            let known = node.known().await?;
            for orphan in incarnations.filter(|incarnation| !known.contains(incarnation.as_str())) {
                purged += node.sweep_users(presences, database, &orphan).await?;
            }
        }
        let mut scan = KeyScan::new(&master, keys, "presence")?;
        while let Some(page) = scan.next().await? {
            let users: Vec<UserId> =
                page.iter().filter_map(|key| UserId::new(id(&catalog, key)?).ok()).collect();
            // The owners first, then the known nodes: a node that joins in between is known.
            let owners = presences.owners(&users).await?;
            let known = node.known().await?;
            for (user, owners) in users.iter().zip(owners) {
                for orphan in owners.iter().filter(|owner| !known.contains(owner.as_str())) {
                    save_last_seen(database, std::slice::from_ref(user)).await;
                    presences.sweep(orphan, user).await?;
                    purged += 1;
                }
            }
        }
    }
    Ok(purged)
}

fn id(catalog: &Catalog, key: &[u8]) -> Option<String> {
    catalog.find(key)?.ids.first().map(ToString::to_string)
}

/// The keys of a family on one master, a page at a time. Keys can repeat.
struct KeyScan<'a> {
    master: &'a Store,
    glob: Vec<u8>,
    /// `None` after the last page.
    cursor: Option<String>,
}

impl<'a> KeyScan<'a> {
    fn new(master: &'a Store, keys: &Keys, family: &str) -> Result<Self, Error> {
        let space = keys.space();
        let at = space.schema().families.iter().position(|declared| declared.name == family);
        let at = at.ok_or_else(|| Error::Config(format!("the schema has no key family {family}")))?;
        Ok(Self { master, glob: space.glob(at), cursor: Some("0".to_owned()) })
    }

    async fn next(&mut self) -> Result<Option<Vec<Vec<u8>>>, Error> {
        let Some(cursor) = self.cursor.take() else { return Ok(None) };
        let scan = cmd("SCAN").arg(cursor).arg("MATCH").arg(&self.glob).arg("COUNT").arg(SCAN_COUNT).take();
        let (next, page): (String, Vec<Vec<u8>>) = self.master.run(scan).await?;
        self.cursor = (next != "0").then_some(next);
        Ok(Some(page))
    }
}
