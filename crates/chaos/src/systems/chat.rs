//! Chat: members of conversations send, receive and read on all nodes; visitors come and go.

mod client;
mod ledger;

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures_util::future::{FutureExt as _, LocalBoxFuture, join_all};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::client::Member;
use self::ledger::Ledger;
use crate::fault::Kind;
use crate::http::Outcome;
use crate::seed::Random;
use crate::system::{System, pause, within};
use crate::world::{Redis, World};

const NAME: &str = "chat";
const ROOMS: usize = 4;
const MEMBERS: usize = 4;
/// Users that are online for a few seconds in each round.
const VISITORS: usize = 6;

/// A node's users are offline within this time after it died, and a user that left in a time that Redis lost.
const OFFLINE_WITHIN: Duration = Duration::from_secs(12);
/// If a node died and a master lost its data, within three leases.
const OFFLINE_AFTER_LOSS: Duration = Duration::from_secs(27);
/// Added to the limits of presence, because the machine may be busy.
const PRESENCE_SLACK: Duration = Duration::from_secs(10);
/// Added to every other limit.
const SLACK: Duration = Duration::from_secs(30);

const CONVERSATIONS: &str = "/api/v1/chat/conversations";

/// The conversations and their clients.
pub(crate) struct Chat {
    world: Arc<World>,
    rooms: Vec<Arc<Room>>,
    visitors: Vec<(String, String)>,
    random: Mutex<Random>,
    counts: Arc<Counts>,
    /// The members' connections, for the whole run.
    _clients: JoinSet<()>,
}

/// One conversation.
pub(crate) struct Room {
    name: String,
    ledger: Mutex<Ledger>,
}

#[derive(Debug, Default)]
pub(crate) struct Counts {
    connections: AtomicU64,
    retries: AtomicU64,
    visits: AtomicU64,
    reads: AtomicU64,
    presence_checks: AtomicU64,
    /// The longest time until presence was right on all nodes, after the traffic had stopped and the last fault had ended.
    longest_presence_ms: AtomicU64,
    unread_checks: AtomicU64,
}

impl Room {
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn user(&self, member: usize) -> String {
        format!("{}-user{member}", self.name)
    }
}

/// The section of `hob.toml`.
pub(crate) fn config(folder: &Path) -> Result<String> {
    let secret = folder.join("chat-secret");
    std::fs::write(&secret, "a secret that all nodes share").context("cannot write the secret")?;
    Ok(format!(
        "[chat]\ntoken_secret = \"file:{}\"\nmessage_rate_limit = 1000000\nconnects_per_minute = 1000000\n\
         ping_interval = \"2s\"\n",
        secret.display()
    ))
}

impl Chat {
    /// Opens the conversations and connects their members.
    pub(crate) async fn start(world: &Arc<World>, seed: u64) -> Result<Self> {
        let (mut rooms, mut clients, counts) = (Vec::new(), JoinSet::new(), Arc::new(Counts::default()));
        for number in 0..ROOMS {
            let room = Arc::new(Room { name: format!("room{number}"), ledger: Mutex::default() });
            let members: Vec<String> = (0..MEMBERS).map(|member| room.user(member)).collect();
            let body = json!({ "id": room.name, "title": room.name, "created_by": members[0], "members": members[1..] });
            let opened = world.http.post(world.nodes[0].api, CONVERSATIONS, &body).await;
            anyhow::ensure!(opened.ok(201).is_some(), "cannot open a conversation");
            for (number, user) in members.iter().enumerate() {
                let token = token(world, user).await?;
                let member = Member {
                    world: Arc::clone(world),
                    room: Arc::clone(&room),
                    number,
                    token,
                    counts: Arc::clone(&counts),
                };
                clients.spawn(member.stay_connected());
            }
            rooms.push(room);
        }
        let mut visitors = Vec::new();
        for number in 0..VISITORS {
            let user = format!("visitor{number}");
            visitors.push((user.clone(), token(world, &user).await?));
        }
        let random = Mutex::new(Random::new(seed, NAME));
        Ok(Self { world: Arc::clone(world), rooms, visitors, random, counts, _clients: clients })
    }

    /// Draws what one part of the traffic needs.
    fn fork(&self, part: &str) -> Random {
        Random::new(self.random.lock().unwrap_or_else(PoisonError::into_inner).next(), part)
    }

    /// One member sends one message after the other, each until it is acknowledged.
    async fn send(&self, room: &Room, sender: usize, mut random: Random, stop: &CancellationToken) {
        let mut number = 0;
        while !stop.is_cancelled() {
            number += 1;
            let content =
                format!("{}:{sender}:{}:{number}", room.name, self.world.begun.elapsed().as_micros());
            let body = json!({ "sender_id": room.user(sender), "content": content, "client_id": content });
            let path = format!("{CONVERSATIONS}/{}/messages", room.name);
            let Some(message) = self.insist(&path, &body, &[201, 200], &mut random).await else {
                room.ledger().give_up(&content);
                self.violate(format!("{content:?} was not acknowledged, although it was repeated"));
                return;
            };
            let sequence = message["sequence"].as_u64().unwrap_or(0);
            let acknowledged = room.ledger().acknowledge(sender, sequence, &content);
            acknowledged.unwrap_or_else(|what| self.violate(format!("{}: {what}", room.name)));
            if random.below(4) == 0 {
                self.read(room, random.below(MEMBERS), &mut random).await;
            }
            pause(random.ms(100..400) / self.world.traffic, stop).await;
        }
    }

    /// A member reads everything that it has received.
    async fn read(&self, room: &Room, member: usize, random: &mut Random) {
        let sequence = room.ledger().position(member);
        let body = json!({ "user_id": room.user(member), "sequence": sequence });
        let path = format!("{CONVERSATIONS}/{}/read", room.name);
        match self.insist(&path, &body, &[200], random).await {
            Some(_) => {
                self.counts.reads.fetch_add(1, Ordering::Relaxed);
                room.ledger().mark_read(member, sequence);
            }
            None => self.violate(format!("{path} was not acknowledged, although it was repeated")),
        }
    }

    /// Repeats an idempotent request on all nodes until it is acknowledged.
    async fn insist(&self, path: &str, body: &Value, statuses: &[u16], random: &mut Random) -> Option<Value> {
        let begun = Instant::now();
        let first = random.below(self.world.nodes.len());
        for attempt in 0.. {
            let node = &self.world.nodes[(first + attempt) % self.world.nodes.len()];
            // A repeated message is answered with 200.
            if let Outcome::Answered { status, body } = self.world.http.post(node.api, path, body).await
                && statuses.contains(&status)
            {
                return Some(body);
            }
            if begun.elapsed() > Duration::from_secs(120) {
                break;
            }
            self.counts.retries.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        None
    }

    /// A visitor connects, stays for a moment, and leaves.
    async fn visit(&self, token: &str, mut random: Random, stop: &CancellationToken) {
        while !stop.is_cancelled() {
            pause(random.ms(500..5_000), stop).await;
            let node = &self.world.nodes[random.below(self.world.nodes.len())];
            if client::visit(node.api, token, random.ms(500..4_000)).await.is_some() {
                self.counts.visits.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    async fn check_delivery(&self) {
        for room in &self.rooms {
            for member in 0..MEMBERS {
                let complete = within(SLACK, async || room.ledger().compare(member)).await;
                complete.unwrap_or_else(|what| self.violate(format!("{}: {what}", room.name)));
            }
        }
    }

    /// Members are online, visitors are not, on every node.
    async fn check_presence(&self) {
        let members = self.rooms.iter().flat_map(|room| (0..MEMBERS).map(|member| room.user(member)));
        let users: Vec<String> = members.chain(self.visitors.iter().map(|(user, _)| user.clone())).collect();
        let limit = if self.lost_a_node_and_data() { OFFLINE_AFTER_LOSS } else { OFFLINE_WITHIN };
        let limit = limit + PRESENCE_SLACK;
        let begun = Instant::now();
        for node in &self.world.nodes {
            let correct = within(limit.saturating_sub(begun.elapsed()), async || {
                let body = json!({ "users": users });
                let answer = self.world.http.post(node.api, "/api/v1/chat/users/presence", &body).await;
                let answer = answer.ok(200).ok_or("no response")?;
                let online: Vec<bool> = answer["users"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .map(|user| user["online"] == true)
                    .collect();
                presence(&users, &online, users.len() - VISITORS)
            });
            self.counts.presence_checks.fetch_add(users.len() as u64, Ordering::Relaxed);
            let correct = correct.await;
            correct.unwrap_or_else(|what| {
                self.violate(format!("node {}, after {limit:?}: {what}", node.number));
            });
        }
        let took = begun.elapsed().as_millis() as u64;
        self.counts.longest_presence_ms.fetch_max(took, Ordering::Relaxed);
    }

    /// Whether a node died in this round while Redis lost data.
    fn lost_a_node_and_data(&self) -> bool {
        let now = Instant::now();
        let faults = self.world.faults.between(now.checked_sub(Duration::from_secs(120)).unwrap_or(now), now);
        faults.iter().any(|injected| matches!(injected.fault.kind(), Kind::KillNode | Kind::FreezeNode))
            && faults.iter().any(|injected| injected.fault.may_lose_writes())
    }

    /// The totals in Redis, which other services read (C9). Checked before Hob is asked, because it corrects what it reads.
    async fn check_public_unread(&self) {
        let correct = within(SLACK, async || {
            let totals = tokio::task::block_in_place(|| public_unread(&self.world.redis))?;
            for room in &self.rooms {
                for member in 0..MEMBERS {
                    let user = room.user(member);
                    let found = totals.get(&user).copied().unwrap_or(0);
                    let (least, uncertain) = room.ledger().unread(member);
                    if !(least..=least + uncertain).contains(&found) {
                        return Err(format!(
                            "Redis has {found} unread for {user}, and a recount finds {least}"
                        ));
                    }
                }
            }
            Ok(())
        });
        self.counts.unread_checks.fetch_add((self.rooms.len() * MEMBERS) as u64, Ordering::Relaxed);
        correct.await.unwrap_or_else(|what| self.violate(what));
    }

    async fn check_unread(&self) {
        for room in &self.rooms {
            for member in 0..MEMBERS {
                let path = format!("/api/v1/chat/users/{}/unread", room.user(member));
                for node in &self.world.nodes {
                    let correct = within(SLACK, async || {
                        let answer =
                            self.world.http.get(node.api, &path).await.ok(200).ok_or("no response")?;
                        let (least, uncertain) = room.ledger().unread(member);
                        let found = answer["total"].as_u64().unwrap_or(0);
                        let right = (least..=least + uncertain).contains(&found);
                        if right {
                            Ok(())
                        } else {
                            Err(format!("{found} unread, and a recount finds {least}"))
                        }
                    });
                    self.counts.unread_checks.fetch_add(1, Ordering::Relaxed);
                    let correct = correct.await;
                    correct.unwrap_or_else(|what| {
                        self.violate(format!("{path} on node {}: {what}", node.number));
                    });
                }
            }
        }
    }

    fn violate(&self, what: String) {
        self.world.violations.add(NAME, what);
    }
}

/// The unread total of each user, as the masters have it.
fn public_unread(redis: &Redis) -> Result<HashMap<String, u64>, String> {
    let text = |error: redis::RedisError| error.to_string();
    let mut totals = HashMap::new();
    for master in redis.masters() {
        let server = &master.server;
        let keys: Vec<String> = server.try_command(&["KEYS", "unread:*:total"]).map_err(text)?;
        for key in keys {
            let total: Option<u64> = server.try_command(&["GET", &key]).map_err(text)?;
            // In a Cluster, the user is the hash tag.
            let user = key.split(':').nth(1).unwrap_or_default().trim_matches(['{', '}']);
            totals.insert(user.to_owned(), total.unwrap_or(0));
        }
    }
    Ok(totals)
}

/// The first `members` users are online, the others are not.
fn presence(users: &[String], online: &[bool], members: usize) -> Result<(), String> {
    if online.len() != users.len() {
        return Err(format!("{} of {} users in the response", online.len(), users.len()));
    }
    let wrong = users.iter().zip(online).enumerate().find(|(at, (_, online))| (*at < members) != **online);
    match wrong {
        None => Ok(()),
        Some((at, (user, _))) if at < members => Err(format!("{user} is connected, but not online")),
        Some((_, (user, _))) => Err(format!("{user} has left, but is online")),
    }
}

/// A token for a user, issued by a node.
async fn token(world: &World, user: &str) -> Result<String> {
    let path = format!("/api/v1/chat/users/{user}/token");
    let issued = world.http.post(world.nodes[0].api, &path, &json!({ "ttl": 86_400 })).await;
    let token = issued.ok(200).and_then(|body| Some(body["token"].as_str()?.to_owned()));
    token.with_context(|| format!("no token for {user}"))
}

impl System for Chat {
    fn name(&self) -> &'static str {
        NAME
    }

    fn drive(&self, stop: CancellationToken) -> LocalBoxFuture<'_, ()> {
        async move {
            let mut parts: Vec<LocalBoxFuture<'_, ()>> = Vec::new();
            for (number, room) in self.rooms.iter().enumerate() {
                for sender in 0..2 {
                    let random = self.fork(&format!("{number}-{sender}"));
                    parts.push(self.send(room, sender, random, &stop).boxed_local());
                }
            }
            for (user, token) in &self.visitors {
                parts.push(self.visit(token, self.fork(user), &stop).boxed_local());
            }
            join_all(parts).await;
        }
        .boxed_local()
    }

    fn settle(&self) -> LocalBoxFuture<'_, ()> {
        async move {
            // The time in which users must be offline begins now, whatever else is checked.
            tokio::join!(self.check_presence(), async {
                self.check_delivery().await;
                self.check_public_unread().await;
                self.check_unread().await;
            });
        }
        .boxed_local()
    }

    fn counts(&self) -> Vec<(&'static str, u64)> {
        let sum =
            |count: fn(&Ledger) -> usize| self.rooms.iter().map(|room| count(&room.ledger()) as u64).sum();
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        vec![
            ("acknowledged messages", sum(Ledger::acknowledged)),
            ("deliveries", sum(Ledger::delivered)),
            ("requests repeated", read(&self.counts.retries)),
            ("connections of members", read(&self.counts.connections)),
            ("visits", read(&self.counts.visits)),
            ("read pointers moved", read(&self.counts.reads)),
            ("presences compared", read(&self.counts.presence_checks)),
            ("longest wait for presence, in ms", read(&self.counts.longest_presence_ms)),
            ("unread counts compared", read(&self.counts.unread_checks)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::presence;

    #[test]
    fn ghosts_and_missing_members_are_found() {
        let users = ["anna", "bert", "visitor"].map(str::to_owned);
        assert_eq!(presence(&users, &[true, true, false], 2), Ok(()));
        assert!(
            presence(&users, &[true, true, true], 2).unwrap_err().contains("visitor has left, but is online")
        );
        assert!(presence(&users, &[true, false, false], 2).unwrap_err().contains("bert is connected"));
        assert!(presence(&users, &[true], 2).is_err());
    }
}
