//! A virtual user: goes through the steps of a scenario, with cookies, variables and connections of its own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::connection::{Body, Connection, Failed, Received};
use super::desk::Desk;
use super::meter::Outcome;
use super::response::Asked;
use crate::plan::{Answer, Pause, Step};
use crate::results::second::Fault;

#[derive(Debug)]
pub(super) struct User {
    desk: Arc<Desk>,
    valve: super::valve::Valve,
    scenario: usize,
    /// One per origin, once it was needed.
    connections: Vec<Option<Connection>>,
    cookies: Vec<Vec<(String, String)>>,
    values: Vec<String>,
    request: Vec<u8>,
    /// Which of the run's users it is at the moment.
    number: u64,
    /// The bytes of its last request.
    sent: usize,
}

/// Whether the rest of an iteration makes sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Go {
    On,
    Over,
}

impl User {
    pub(super) fn new(desk: &Arc<Desk>, scenario: usize) -> Self {
        let origins = desk.destinations.len();
        Self {
            desk: Arc::clone(desk),
            valve: desk.valve.clone(),
            scenario,
            connections: (0..origins).map(|_| None).collect(),
            cookies: vec![Vec::new(); origins],
            values: desk.plan.values.clone(),
            request: Vec::new(),
            number: 0,
            sent: 0,
        }
    }

    /// Goes through all steps once, as the user of this number. The first request should have started at
    /// `intended`.
    pub(super) async fn iterate(&mut self, number: u64, iteration: u64, intended: Instant) {
        let desk = Arc::clone(&self.desk);
        self.number = number;
        self.become_new(iteration);
        let (steps, plan) = (&desk.steps[self.scenario], &desk.plan);
        let mut intended = Some(intended);
        for index in steps {
            let step = &plan.steps[*index];
            self.valve.pass().await;
            if let Some(throttle) = &desk.throttle {
                throttle.turn().await;
            }
            if self.valve.is_stopped() {
                return;
            }
            // Later steps have no time of their own: they follow the one before.
            let go = self.request(*index, step, intended.take()).await;
            if go == Go::Over {
                return;
            }
            let think = step.think.unwrap_or(plan.scenarios[self.scenario].think);
            if think.most > Duration::ZERO {
                tokio::time::sleep(think.pick()).await;
            }
        }
    }

    async fn request(&mut self, index: usize, step: &Step, intended: Option<Instant>) -> Go {
        let begun = Instant::now();
        let intended = intended.unwrap_or(begun).min(begun);
        let outcome = self.exchange(step, begun).await;
        let now = Instant::now();
        let took = now - begun;
        let origin = step.request.origin;
        let (fault, bytes_in) = match &outcome {
            Ok(received) => (self.judge(step, received, took), received.bytes),
            Err(fault) => (Some(*fault), 0),
        };
        let keep = outcome.as_ref().is_ok_and(|received| received.head.keep_alive);
        if !keep {
            self.connections[origin] = None;
        }
        let bytes_out = self.sent as u64;
        let measured = Outcome { intended: now - intended, actual: took, fault, bytes_in, bytes_out };
        self.desk.record(now, index, self.number, measured);
        match (outcome, fault) {
            (Err(_), _) | (_, Some(Fault::Extract)) => Go::Over,
            _ => Go::On,
        }
    }

    /// Sends a request, on a connection that is there or a new one.
    async fn exchange(&mut self, step: &Step, begun: Instant) -> Result<Received, Fault> {
        let request = &step.request;
        let deadline = begun + step.timeout;
        let cookies = &self.cookies[request.origin];
        let fixed = request.fixed().filter(|_| cookies.is_empty());
        if fixed.is_none() {
            self.request.clear();
            request.write(&mut self.request, &self.values, cookies);
        }
        let bytes = fixed.unwrap_or(&self.request);
        self.sent = bytes.len();
        let asked = if request.is_head() { Asked::Head } else { Asked::Other };
        let body = if step.needs_body { Body::Keep } else { Body::Skip };
        let place = &mut self.connections[request.origin];
        loop {
            let connection = match place {
                Some(connection) => connection,
                None => {
                    let opened = Connection::open(&self.desk.destinations[request.origin], deadline).await?;
                    self.desk.connected(self.number);
                    place.insert(opened)
                }
            };
            match connection.exchange(bytes, asked, body, deadline).await {
                Ok(received) => return Ok(received),
                // A server may close a connection that was idle just when it is used again; this says nothing
                // about the request.
                Err(Failed::Unanswered) => *place = None,
                Err(Failed::With(fault)) => return Err(fault),
            }
        }
    }

    /// What is wrong with a response; takes from it what later steps need.
    fn judge(&mut self, step: &Step, received: &Received, took: Duration) -> Option<Fault> {
        let origin = step.request.origin;
        for (name, value) in &received.head.cookies {
            self.cookies[origin].retain(|(known, _)| known != name);
            self.cookies[origin].extend(value.clone().map(|value| (name.clone(), value)));
        }
        let status = received.head.status;
        if step.checks.is_empty() && step.extract.is_empty() {
            return (status >= 400).then_some(Fault::Status(status));
        }
        let connection = self.connections[origin].as_ref()?;
        let answer = Answer { status, head: connection.head(received), body: connection.body(), took };
        let mut expects_status = false;
        for (index, check) in step.checks.iter().enumerate() {
            expects_status |= matches!(check, crate::plan::Check::Status(_));
            if !check.holds(&answer) {
                return Some(Fault::Check(index as u16));
            }
        }
        if !expects_status && status >= 400 {
            return Some(Fault::Status(status));
        }
        for extract in &step.extract {
            match extract.take(&answer) {
                Some(value) => self.values[extract.variable] = value,
                None => return Some(Fault::Extract),
            }
        }
        None
    }

    /// Each iteration is somebody new, with the values of a row of the plan's users.
    fn become_new(&mut self, iteration: u64) {
        let number = self.number;
        self.cookies.iter_mut().for_each(Vec::clear);
        if !self.desk.has_variables {
            return;
        }
        let plan = &self.desk.plan;
        self.values.clone_from(&plan.values);
        let run_type = &plan.run_types[self.desk.run_type];
        if !run_type.rows.is_empty() {
            let row = &run_type.rows[number as usize % run_type.rows.len()];
            for (variable, value) in run_type.columns.iter().zip(row) {
                self.values[*variable].clone_from(value);
            }
        }
        for (place, value) in [number, iteration, rand::random()].iter().enumerate() {
            self.values[place] = value.to_string();
        }
    }
}

impl Pause {
    fn pick(&self) -> Duration {
        self.least + (self.most - self.least).mul_f64(rand::random::<f64>())
    }
}
