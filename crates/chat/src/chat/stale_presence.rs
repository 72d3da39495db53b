//! Removes presence that belongs to no connection.
//!
//! Presence is corrected where it changes: the node that owns a socket confirms it, and the users of a dead node are found
//! through its index. One master of a Cluster can lose that index or the list of nodes, while the users in it stay online on
//! other masters. So after a data loss, when all live nodes have renewed their leases, each node checks all users in Redis.
//!
//! In addition, each node checks a page of keys at a time, all the time. This finds what is wrong for any other reason: Redis
//! executed a call long after the node had given it up, or another client changed keys. Keys that Redis has evicted are a data
//! loss: also the presence of users with a connection may be missing.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use hob_schema::Catalog;
use hob_service::Task;
use hob_store::{Evictions, Store, cmd};

use super::{Chat, Inner};
use crate::Error;
use crate::hub::node::save_last_seen;
use crate::keys::{Incarnation, Keys, SocketId, UserId};

/// The pause between two pages of the pass that never ends.
const INTERVAL: Duration = Duration::from_secs(5);
/// The `COUNT` of `SCAN`.
const PAGE: u32 = 500;
/// The most sockets of unknown nodes to remember. The others are found in the next pass.
const MAX_SUSPECTS: usize = 10_000;

/// What may be wrong with a user in Redis.
#[derive(Debug)]
enum Finding {
    /// A socket of this node.
    Own(SocketId),
    /// A socket of an incarnation that is neither live nor waiting to be swept.
    Orphan(Incarnation),
    /// The user is online without a socket.
    WithoutSocket,
}

/// The sockets of unknown nodes, and when they were first seen. A live node that Redis has lost joins again within a lease.
type Suspects = HashMap<(UserId, Incarnation), Instant>;

impl Chat {
    /// Checks all users in Redis, page by page, for ever.
    pub(super) async fn watch_stale_presence(self, task: Task) {
        let (mut pass, mut suspects, mut evictions) = (None, Suspects::new(), Evictions::default());
        while task.pause(INTERVAL).await {
            if let Err(error) = self.look_for_evictions(&mut evictions).await {
                tracing::debug!(%error, "failed to look for evicted keys, retrying");
            }
            match self.check_page(&mut pass, &mut suspects).await {
                Ok(0) => {}
                Ok(users) => tracing::info!(users, "presence of users without a connection removed"),
                Err(error) => tracing::debug!(%error, "failed to check the presence of users, retrying"),
            }
            task.heartbeat();
        }
    }

    /// Restores the presence of this node's users after Redis has evicted keys, at most once per lease.
    async fn look_for_evictions(&self, evictions: &mut Evictions) -> Result<(), Error> {
        let Inner { hub, store, .. } = &*self.inner;
        if evictions.found(store, hub.node.lease()).await? {
            tracing::warn!("Redis evicted keys, rebuilding chat data");
            hub.node.note_loss();
            self.restore_after_loss().await?;
            evictions.handled();
        }
        Ok(())
    }

    /// Checks the next page, and the suspects of a lease ago. Returns how many users were corrected.
    async fn check_page(&self, pass: &mut Option<Pass>, suspects: &mut Suspects) -> Result<usize, Error> {
        let Inner { hub, store, keys, .. } = &*self.inner;
        let lease = hub.node.lease();
        let due: Vec<(UserId, Incarnation)> = suspects
            .iter()
            .filter(|(_, seen)| seen.elapsed() >= lease)
            .map(|(suspect, _)| suspect.clone())
            .collect();
        let mut users: HashSet<UserId> = due.iter().map(|(user, _)| user.clone()).collect();
        // A pass that fails begins again, because there may be another master.
        let mut current = match pass.take() {
            Some(pass) => pass,
            None => Pass::begin(store, keys).await?,
        };
        if let Some(page) = current.next().await? {
            users.extend(page.users);
            *pass = Some(current);
        }
        // The sockets of these are confirmed when they change.
        users.retain(|user| hub.sockets_of(user).is_empty());
        let users: Vec<UserId> = users.into_iter().collect();
        let mut corrected = 0;
        for (user, finding) in self.findings(&users).await? {
            if let Finding::Orphan(owner) = &finding {
                let suspect = (user.clone(), owner.clone());
                if !due.contains(&suspect) {
                    if suspects.len() < MAX_SUSPECTS {
                        suspects.entry(suspect).or_insert_with(Instant::now);
                    }
                    continue;
                }
            }
            self.correct(&user, &finding).await?;
            corrected += 1;
        }
        for suspect in &due {
            suspects.remove(suspect);
        }
        Ok(corrected)
    }

    /// Removes the sockets of incarnations that are neither live nor waiting to be swept, closes sockets that this node does
    /// not have, and sets users offline who have no sockets. Returns how many users were affected.
    pub(super) async fn purge_orphans(&self) -> Result<usize, Error> {
        let Inner { hub, store, keys, presences, database, .. } = &*self.inner;
        let mut pass = Pass::begin(store, keys).await?;
        let mut purged = 0;
        while let Some(page) = pass.next().await? {
            if !page.incarnations.is_empty() {
                let known = hub.node.known().await?;
                for orphan in page.incarnations.iter().filter(|one| !known.contains(one.as_str())) {
                    purged += hub.node.sweep_users(presences, database, orphan).await?;
                }
            }
            for (user, finding) in self.findings(&page.users).await? {
                if matches!(&finding, Finding::Own(socket) if hub.sockets_of(&user).contains(socket)) {
                    continue;
                }
                self.correct(&user, &finding).await?;
                purged += 1;
            }
        }
        Ok(purged)
    }

    /// What may be wrong with these users.
    async fn findings(&self, users: &[UserId]) -> Result<Vec<(UserId, Finding)>, Error> {
        let Inner { hub, presences, .. } = &*self.inner;
        if users.is_empty() {
            return Ok(Vec::new());
        }
        // The owners first, then the known nodes: a node that joins in between is known.
        let owned = presences.owned_sockets(users).await?;
        let presence = presences.of(users).await?;
        let known = hub.node.known().await?;
        let mut findings = Vec::new();
        for ((user, sockets), presence) in users.iter().zip(owned).zip(presence) {
            if sockets.is_empty() && presence.online {
                findings.push((user.clone(), Finding::WithoutSocket));
            }
            let mut orphans = HashSet::new();
            for (socket, owner) in sockets {
                if hub.node.is_own(owner.as_str()) {
                    findings.push((user.clone(), Finding::Own(socket)));
                } else if !known.contains(owner.as_str()) {
                    orphans.insert(owner);
                }
            }
            findings.extend(orphans.into_iter().map(|owner| (user.clone(), Finding::Orphan(owner))));
        }
        Ok(findings)
    }

    /// Corrects a user. Does nothing if the user has changed in the meantime.
    async fn correct(&self, user: &UserId, finding: &Finding) -> Result<(), Error> {
        let Inner { presences, database, .. } = &*self.inner;
        match finding {
            Finding::Own(socket) => return self.close_absent_socket(user, socket).await,
            Finding::Orphan(owner) => {
                save_last_seen(database, std::slice::from_ref(user)).await;
                presences.sweep(owner, user).await?;
            }
            Finding::WithoutSocket => {
                save_last_seen(database, std::slice::from_ref(user)).await;
                presences.settle(user).await?;
            }
        }
        Ok(())
    }
}

/// The keys of all masters, a page at a time. Keys can repeat.
struct Pass {
    catalog: Catalog,
    /// The families with a user, and that with an incarnation.
    presence: [usize; 2],
    node_users: usize,
    masters: Vec<Store>,
    cursor: String,
}

/// What a page of keys is about.
#[derive(Default)]
struct Page {
    users: Vec<UserId>,
    incarnations: Vec<Incarnation>,
}

impl Pass {
    async fn begin(store: &Store, keys: &Keys) -> Result<Self, Error> {
        let space = keys.space();
        let catalog = Catalog::new(vec![space.schema().clone()], space.layout())
            .map_err(|clash| Error::Config(clash.to_string()))?;
        let family = |name: &str| {
            let found = space.schema().families.iter().position(|family| family.name == name);
            found.ok_or_else(|| Error::Config(format!("the schema has no key family {name}")))
        };
        Ok(Self {
            catalog,
            presence: [family("presence")?, family("online")?],
            node_users: family("node_users")?,
            masters: store.masters().await?,
            cursor: START.to_owned(),
        })
    }

    /// The next page; `None` after the last one.
    async fn next(&mut self) -> Result<Option<Page>, Error> {
        let Some(master) = self.masters.last() else { return Ok(None) };
        let scan = cmd("SCAN").arg(&self.cursor).arg("COUNT").arg(PAGE).take();
        let (next, keys): (String, Vec<Vec<u8>>) = master.run(scan).await?;
        if next == START {
            self.masters.pop();
        }
        self.cursor = next;
        let mut page = Page::default();
        for key in &keys {
            let Some(found) = self.catalog.find(key) else { continue };
            let Some(id) = found.ids.first() else { continue };
            if self.presence.contains(&found.family.family) {
                page.users.extend(UserId::new(id.as_ref()).ok());
            } else if found.family.family == self.node_users {
                page.incarnations.extend(Incarnation::new(id.as_ref()).ok());
            }
        }
        Ok(Some(page))
    }
}

/// The first cursor of `SCAN`, which it also returns at the end.
const START: &str = "0";
