//! The state that all routes share: the service context, access, the audit log, live updates.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hob_database::{Transaction, sql};
use hob_net::ServerTls;
use hob_service::config::Secret;
use hob_service::keys::Keys;
use hob_service::{Live, ServiceContext, Task};
use hob_units::AuthThrottle;

use crate::access::oidc::Oidc;
use crate::access::{Authenticator, CHECK_INTERVAL};
use crate::server::listener;
use crate::{Audit, Changes, Config, Error, SignInConfig};

/// The shared state of one process. Clones share the same state.
#[derive(Clone)]
pub struct Web {
    inner: Arc<Inner>,
}

struct Inner {
    context: ServiceContext,
    config: Live<Config>,
    authenticator: Authenticator,
    oidc: Oidc,
    audit: Audit,
    changes: Changes,
    tls: Option<Arc<ServerTls>>,
    /// The services that scopes may name.
    services: OnceLock<BTreeSet<String>>,
}

/// How often expired rows are deleted and the times of token use are written.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

impl Web {
    /// Reads the admin token and the certificate. Fails without an admin token if the address is not loopback.
    pub fn open(context: &ServiceContext, config: Live<Config>) -> Result<Self, Error> {
        Self::open_with(context, config, Live::fixed(SignInConfig::default()))
    }

    /// Like [`open`](Self::open), with settings for the sign-in of users.
    pub fn open_with(
        context: &ServiceContext,
        config: Live<Config>,
        sign_in: Live<SignInConfig>,
    ) -> Result<Self, Error> {
        let admin = config.current().admin()?;
        check_sign_in(&sign_in.current(), admin.as_ref())?;
        let keys = Keys::from_env(context.layout, &|name| std::env::var(name).ok())?;
        let tls = listener::certificate(&config.current())?.map(ServerTls::read).transpose()?.map(Arc::new);
        let inner = Inner {
            tls,
            authenticator: Authenticator::new(&context.database, admin.as_ref(), sign_in.clone()),
            oidc: Oidc::new(sign_in, &context.outbound),
            audit: Audit::new(&context.database),
            changes: Changes::new(context, &keys),
            services: OnceLock::new(),
            context: context.clone(),
            config,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Starts the background tasks.
    pub fn start(&self) {
        self.inner.changes.start();
        let (tidier, watcher, guard) = (self.clone(), self.clone(), self.clone());
        let tasks = &self.inner.context.tasks;
        tasks.spawn("session and audit sweep", move |task| tidier.clone().sweep(task));
        tasks.spawn("credential watch", move |task| guard.clone().watch_credentials(task));
        tasks.spawn("server configuration reload", move |task| watcher.clone().watch_config(task));
    }

    #[must_use]
    pub fn context(&self) -> &ServiceContext {
        &self.inner.context
    }

    #[must_use]
    pub fn config(&self) -> Arc<Config> {
        self.inner.config.current()
    }

    /// Validates a reloaded configuration before it is applied.
    pub fn check_reload(&self, config: &Config, sign_in: &SignInConfig) -> Result<(), Error> {
        let admin = config.admin()?;
        if admin.is_none() && !self.inner.authenticator.is_open() {
            return Err(Error::AdminTokenRemoved);
        }
        check_sign_in(sign_in, admin.as_ref())?;
        listener::certificate(config)?.map(ServerTls::read).transpose()?;
        Ok(())
    }

    /// Notifies open pages of changes.
    #[must_use]
    pub fn changes(&self) -> &Changes {
        &self.inner.changes
    }

    /// The audit log.
    #[must_use]
    pub fn audit(&self) -> &Audit {
        &self.inner.audit
    }

    /// Deletes expired sessions, tokens and audit entries, and writes the times of token use. Runs every minute.
    pub async fn tidy(&self) -> Result<(), Error> {
        self.inner.authenticator.flush_token_uses().await?;
        let kept = self.config().keep_audit_log.get();
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

    pub(crate) fn authenticator(&self) -> &Authenticator {
        &self.inner.authenticator
    }

    pub(crate) fn oidc(&self) -> &Oidc {
        &self.inner.oidc
    }

    /// Limits wrong credentials: API and admin tokens, sign-in, and passwords of Redis clients.
    #[must_use]
    pub fn auth_throttle(&self) -> &AuthThrottle {
        self.inner.authenticator.throttle()
    }

    pub(crate) fn has_tls(&self) -> bool {
        self.inner.tls.is_some()
    }

    /// Sets the services that scopes may name.
    pub(crate) fn set_services(&self, services: BTreeSet<String>) {
        // Fails if another app with the same state has set them before. The services are the same then.
        let _ = self.inner.services.set(services);
    }

    pub(crate) fn has_service(&self, service: &str) -> bool {
        self.inner.services.get().is_some_and(|services| services.contains(service))
    }

    async fn sweep(self, task: Task) {
        while task.pause(SWEEP_INTERVAL).await {
            match self.tidy().await {
                Ok(()) => task.heartbeat(),
                Err(error) => {
                    tracing::warn!(%error, "failed to delete old sessions, tokens and audit log entries");
                }
            }
        }
        // Saves the times of token use of the last minute.
        let _ = self.inner.authenticator.flush_token_uses().await;
    }

    /// Ends streams whose credentials are no longer valid.
    async fn watch_credentials(self, task: Task) {
        let authenticator = &self.inner.authenticator;
        loop {
            tokio::select! {
                running = task.pause(CHECK_INTERVAL) => if !running { return },
                () = authenticator.recheck_requested() => {}
            }
            authenticator.check_streams().await;
            task.heartbeat();
        }
    }

    fn reload_certificate(&self, config: &Config) -> Result<(), Error> {
        if let (Some(tls), Some(files)) = (&self.inner.tls, listener::certificate(config)?) {
            tls.reload(files)?;
        }
        Ok(())
    }

    /// Applies a new admin token and a new certificate when the configuration is reloaded.
    async fn watch_config(self, task: Task) {
        let mut config = self.inner.config.clone();
        loop {
            let now = tokio::select! {
                now = config.changed() => now,
                () = task.stop_requested() => return,
            };
            match now.admin() {
                Ok(Some(admin)) => self.inner.authenticator.replace_admin(&admin),
                Ok(None) if self.inner.authenticator.is_open() => {}
                Ok(None) => {
                    tracing::error!(error = %Error::AdminTokenRemoved, "failed to reload the admin token, keeping the current one");
                }
                Err(error) => {
                    tracing::error!(%error, "failed to reload the admin token, keeping the current one");
                }
            }
            if let Err(error) = self.reload_certificate(&now) {
                tracing::error!(%error, "failed to reload the certificate, keeping the current one");
            }
            task.heartbeat();
        }
    }
}

fn check_sign_in(sign_in: &SignInConfig, admin: Option<&Secret>) -> Result<(), Error> {
    if sign_in.oidc.is_some() && admin.is_none() {
        return Err(Error::OidcWithoutAdminToken);
    }
    sign_in.check()
}

impl fmt::Debug for Web {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Web").field("context", &self.inner.context).finish_non_exhaustive()
    }
}
