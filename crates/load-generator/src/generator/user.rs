//! A virtual user: runs the steps of a scenario with its own cookies, variables and connections.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::connection::{BodyMode, Connection, ExchangeError, Response};
use super::context::WorkerContext;
use super::control::RunClock;
use super::meter::RequestOutcome;
use super::response::RequestKind;
use crate::plan::{Check, ResponseView, Step, ThinkTime};
use crate::results::second::Fault;

#[derive(Debug)]
pub(super) struct User {
    pub(super) context: Arc<WorkerContext>,
    clock: RunClock,
    scenario: usize,
    /// The connections by origin. A connection is opened when it is first needed.
    pub(super) connections: Vec<Option<Connection>>,
    cookies: Vec<Vec<(String, String)>>,
    pub(super) values: Vec<String>,
    request: Vec<u8>,
    /// The number of the current user of the run.
    number: u64,
    /// The bytes that were sent for the last request.
    sent: usize,
}

/// How an iteration ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IterationEnd {
    Completed,
    /// A step failed, or the run was stopped.
    Early,
    /// The target did not accept a connection or closed it.
    NoConnection,
}

impl User {
    pub(super) fn new(context: &Arc<WorkerContext>, scenario: usize) -> Self {
        let origins = context.destinations.len();
        Self {
            context: Arc::clone(context),
            clock: context.clock.clone(),
            scenario,
            connections: (0..origins).map(|_| None).collect(),
            cookies: vec![Vec::new(); origins],
            values: context.plan.values.clone(),
            request: Vec::new(),
            number: 0,
            sent: 0,
        }
    }

    /// Runs all steps once as the user with this number, up to the first that fails. `intended` is the intended start of the
    /// first request.
    pub(super) async fn iterate(&mut self, number: u64, iteration: u64, intended: Instant) -> IterationEnd {
        let context = Arc::clone(&self.context);
        self.number = number;
        self.reset(iteration);
        let (steps, plan) = (&context.steps[self.scenario], &context.plan);
        let mut intended = Some(intended);
        for index in steps {
            let step = &plan.steps[*index];
            self.clock.wait_while_paused().await;
            if let Some(throttle) = &context.throttle {
                throttle.acquire().await;
            }
            if self.clock.is_stopped() {
                return IterationEnd::Early;
            }
            // Later steps have no intended start, because they start when the previous step has ended.
            let fault = self.request(*index, step, intended.take()).await;
            // Also after a failure: otherwise a failing target would get more requests than a healthy one.
            let think = step.think.unwrap_or(plan.scenarios[self.scenario].think);
            if think.max > Duration::ZERO {
                tokio::time::sleep(think.pick()).await;
            }
            match fault {
                None => {}
                Some(fault) if fault.is_connection_failure() => return IterationEnd::NoConnection,
                Some(_) => return IterationEnd::Early,
            }
        }
        IterationEnd::Completed
    }

    /// Sends the request of a step and records it. Returns why it failed, if it did.
    async fn request(&mut self, index: usize, step: &Step, intended: Option<Instant>) -> Option<Fault> {
        let begun = Instant::now();
        let intended = intended.unwrap_or(begun).min(begun);
        let outcome = self.exchange(step, begun).await;
        let now = Instant::now();
        let took = now - begun;
        let fault = self.conclude(step, &outcome, took);
        let bytes_in = outcome.map_or(0, |received| received.bytes);
        let bytes_out = self.sent as u64;
        let measured = RequestOutcome { intended: now - intended, actual: took, fault, bytes_in, bytes_out };
        self.context.record(now, index, self.number, measured);
        fault
    }

    /// Why a step failed, if it did. Afterwards the connection is ready for the next request, or closed.
    pub(super) fn conclude(
        &mut self,
        step: &Step,
        outcome: &Result<Response, Fault>,
        took: Duration,
    ) -> Option<Fault> {
        let fault = match outcome {
            Ok(received) => self.check(step, received, took),
            Err(fault) => Some(*fault),
        };
        let keep = outcome.as_ref().is_ok_and(|received| received.head.keep_alive);
        if !keep {
            self.connections[step.request.origin] = None;
        }
        fault
    }

    /// Sends a request on an open or a new connection.
    pub(super) async fn exchange(&mut self, step: &Step, begun: Instant) -> Result<Response, Fault> {
        let request = &step.request;
        let deadline = begun + step.timeout;
        let cookies = &self.cookies[request.origin];
        let fixed = request.fixed().filter(|_| cookies.is_empty());
        if fixed.is_none() {
            self.request.clear();
            request.write(&mut self.request, &self.values, cookies);
        }
        let bytes = fixed.unwrap_or(&self.request);
        self.sent = 0;
        let kind = if request.is_head() { RequestKind::Head } else { RequestKind::Other };
        let body = if step.needs_body { BodyMode::Keep } else { BodyMode::Skip };
        let slot = &mut self.connections[request.origin];
        loop {
            let connection = match slot {
                Some(connection) => connection,
                None => {
                    let opened =
                        Connection::open(&self.context.destinations[request.origin], deadline).await?;
                    self.context.connected(self.number);
                    slot.insert(opened)
                }
            };
            let outcome = connection.exchange(bytes, kind, body, deadline).await;
            self.sent += connection.sent;
            match outcome {
                Ok(received) => return Ok(received),
                // The server closed an idle connection: the request is sent again on a new one.
                Err(ExchangeError::NoResponse) => *slot = None,
                Err(ExchangeError::Fault(fault)) => return Err(fault),
            }
        }
    }

    /// Why a response fails its step, if it does. Stores cookies and extracted values.
    fn check(&mut self, step: &Step, received: &Response, took: Duration) -> Option<Fault> {
        let origin = step.request.origin;
        for (name, value) in &received.head.cookies {
            self.cookies[origin].retain(|(known, _)| known != name);
            self.cookies[origin].extend(value.clone().map(|value| (name.clone(), value)));
        }
        let status = received.head.status;
        if step.checks.is_empty() && step.extract.is_empty() {
            return (status >= 400).then_some(Fault::Status(status));
        }
        let response = view(&self.connections, step, received, took)?;
        let mut expects_status = false;
        for (index, check) in step.checks.iter().enumerate() {
            let is_status = matches!(check, Check::Status(_));
            expects_status |= is_status;
            if !check.holds(&response) {
                return Some(if is_status { Fault::Status(status) } else { Fault::Check(index as u16) });
            }
        }
        if !expects_status && status >= 400 {
            return Some(Fault::Status(status));
        }
        for extraction in &step.extract {
            match extraction.take(&response) {
                Some(value) => self.values[extraction.variable] = value,
                None => return Some(Fault::Extract),
            }
        }
        None
    }

    /// Resets cookies and variables for a new iteration, with the values of a row of the plan's users.
    pub(super) fn reset(&mut self, iteration: u64) {
        let number = self.number;
        self.cookies.iter_mut().for_each(Vec::clear);
        if !self.context.has_variables {
            return;
        }
        let plan = &self.context.plan;
        self.values.clone_from(&plan.values);
        let run_type = &plan.run_types[self.context.run_type];
        if !run_type.rows.is_empty() {
            let row = &run_type.rows[number as usize % run_type.rows.len()];
            for (variable, value) in run_type.columns.iter().zip(row) {
                self.values[*variable].clone_from(value);
            }
        }
        for (index, value) in [number, iteration, rand::random()].iter().enumerate() {
            self.values[index] = value.to_string();
        }
    }
}

/// The response to a step, for checks and extractions. It is read from the connection.
pub(super) fn view<'a>(
    connections: &'a [Option<Connection>],
    step: &Step,
    received: &Response,
    took: Duration,
) -> Option<ResponseView<'a>> {
    let connection = connections[step.request.origin].as_ref()?;
    let (head, body) = (connection.head(received), connection.body());
    Some(ResponseView { status: received.head.status, head, body, took })
}

impl ThinkTime {
    fn pick(&self) -> Duration {
        self.min + (self.max - self.min).mul_f64(rand::random::<f64>())
    }
}
