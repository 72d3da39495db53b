//! What all routes share: the service context, access, the audit log, live updates.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hob_database::{Transaction, sql};
use hob_net::ServerTls;
use hob_service::keys::Keys;
use hob_service::{Live, ServiceContext, Task};

use crate::access::{Attempts, Door};
use crate::server::listener;
use crate::{Audit, Changes, Config, Error};

/// The web of one process. Clones are handles to the same.
#[derive(Clone)]
pub struct Web {
    inner: Arc<Inner>,
}

struct Inner {
    context: ServiceContext,
    config: Live<Config>,
    door: Door,
    attempts: Attempts,
    audit: Audit,
    changes: Changes,
    tls: Option<Arc<ServerTls>>,
    /// The services that scopes may name.
    services: OnceLock<BTreeSet<String>>,
}

/// How often what is past its time is forgotten, and the use of tokens written down.
const TIDY_EVERY: Duration = Duration::from_secs(60);

impl Web {
    /// Reads what the configuration refers to. Refuses to be open to everybody on an address that others can reach.
    pub fn open(context: &ServiceContext, config: Live<Config>) -> Result<Self, Error> {
        let admin = config.now().admin()?;
        let keys = Keys::from_env(context.layout, &|name| std::env::var(name).ok())?;
        let tls = listener::certificate(&config.now())?.map(ServerTls::read).transpose()?.map(Arc::new);
        let inner = Inner {
            tls,
            door: Door::new(&context.database, admin.as_ref()),
            attempts: Attempts::new(&context.store, keys.clone())?,
            audit: Audit::new(&context.database),
            changes: Changes::new(context, &keys),
            services: OnceLock::new(),
            context: context.clone(),
            config,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Starts what goes on in the background.
    pub fn start(&self) {
        self.inner.changes.start();
        let (tidier, watcher) = (self.clone(), self.clone());
        let tasks = &self.inner.context.tasks;
        tasks.spawn("tidy sessions and audit", move |task| tidier.clone().keep_tidy(task));
        tasks.spawn("watch server configuration", move |task| watcher.clone().watch_config(task));
    }

    #[must_use]
    pub fn context(&self) -> &ServiceContext {
        &self.inner.context
    }

    #[must_use]
    pub fn config(&self) -> Arc<Config> {
        self.inner.config.now()
    }

    /// Checks a reloaded configuration before any part of it replaces the one in force.
    pub fn check_reload(&self, config: &Config) -> Result<(), Error> {
        if config.admin()?.is_none() && !self.inner.door.is_open() {
            return Err(Error::AdminTokenRemoved);
        }
        listener::certificate(config)?.map(ServerTls::read).transpose()?;
        Ok(())
    }

    /// Tells open pages that something changed.
    #[must_use]
    pub fn changes(&self) -> &Changes {
        &self.inner.changes
    }

    /// Who did what.
    #[must_use]
    pub fn audit(&self) -> &Audit {
        &self.inner.audit
    }

    /// Forgets what is past its time, and writes down when tokens were used. Done every minute by itself.
    pub async fn tidy(&self) -> Result<(), Error> {
        self.inner.door.write_uses().await?;
        let kept = self.config().audit_kept.get();
        let forget = |tx: Transaction| async move {
            let (now, oldest) = (tx.now(), tx.now().minus(kept));
            tx.execute(sql("DELETE FROM web_session WHERE expires_at < $1").bind(now)).await?;
            tx.execute(sql("DELETE FROM web_audit WHERE at < $1").bind(oldest)).await?;
            let tokens = sql("DELETE FROM web_token WHERE revoked_at < $1 OR expires_at < $1");
            tx.execute(tokens.bind(oldest)).await?;
            Ok(())
        };
        self.inner.context.database.write(forget).await.map_err(Error::Database)
    }

    pub(crate) fn tls(&self) -> Option<Arc<ServerTls>> {
        self.inner.tls.clone()
    }

    pub(crate) fn door(&self) -> &Door {
        &self.inner.door
    }

    pub(crate) fn attempts(&self) -> &Attempts {
        &self.inner.attempts
    }

    pub(crate) fn speaks_tls(&self) -> bool {
        self.inner.tls.is_some()
    }

    /// Learns which services there are, from their routes.
    pub(crate) fn learn(&self, services: BTreeSet<String>) {
        // A second app over the same web has the same services.
        let _ = self.inner.services.set(services);
    }

    pub(crate) fn knows(&self, service: &str) -> bool {
        self.inner.services.get().is_some_and(|services| services.contains(service))
    }

    async fn keep_tidy(self, task: Task) {
        while task.pause(TIDY_EVERY).await {
            match self.tidy().await {
                Ok(()) => task.beat(),
                Err(error) => tracing::warn!(%error, "could not tidy sessions and audit"),
            }
        }
        // What is known of the last minute would be lost otherwise.
        let _ = self.inner.door.write_uses().await;
    }

    fn reload_certificate(&self, config: &Config) -> Result<(), Error> {
        if let (Some(tls), Some(files)) = (&self.inner.tls, listener::certificate(config)?) {
            tls.reload(files)?;
        }
        Ok(())
    }

    /// Takes over another admin token and another certificate when the configuration is read again.
    async fn watch_config(self, task: Task) {
        let mut config = self.inner.config.clone();
        loop {
            let now = tokio::select! {
                now = config.changed() => now,
                () = task.stopped() => return,
            };
            match now.admin() {
                Ok(Some(admin)) => self.inner.door.replace_admin(&admin),
                Ok(None) if self.inner.door.is_open() => {}
                Ok(None) => tracing::error!(error = %Error::AdminTokenRemoved, "admin token not replaced"),
                Err(error) => tracing::error!(%error, "admin token not replaced"),
            }
            if let Err(error) = self.reload_certificate(&now) {
                tracing::error!(%error, "certificate not replaced");
            }
            task.beat();
        }
    }
}

impl fmt::Debug for Web {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Web").field("context", &self.inner.context).finish_non_exhaustive()
    }
}
