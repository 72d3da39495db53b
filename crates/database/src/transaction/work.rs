//! The work of a transaction without its types, so that [`Database`](crate::Database) is not compiled again for every
//! closure that it runs.

use std::marker::PhantomData;

use futures_util::future::BoxFuture;

use crate::transaction::OpenTransaction;

/// The work that runs in a transaction. It stores its result for the caller, which knows the type.
pub(crate) trait Work: Send {
    /// Runs the work and stores its result. Returns `true` if the result is `Ok`.
    fn run(&mut self, opened: &OpenTransaction) -> BoxFuture<'_, bool>;
}

/// The work that a closure does.
pub(crate) struct Closure<W, F, T, E> {
    work: W,
    result: Option<Result<T, E>>,
    future: PhantomData<fn() -> F>,
}

impl<W, F, T, E> Closure<W, F, T, E>
where
    W: FnMut(&OpenTransaction) -> F,
    F: Future<Output = Result<T, E>>,
{
    pub(crate) fn new(work: W) -> Self {
        Self { work, result: None, future: PhantomData }
    }

    pub(crate) fn into_result(self) -> Result<T, E> {
        self.result.expect("the work has run")
    }
}

impl<W, F, T, E> Work for Closure<W, F, T, E>
where
    W: FnMut(&OpenTransaction) -> F + Send,
    F: Future<Output = Result<T, E>> + Send,
    T: Send,
    E: Send,
{
    fn run(&mut self, opened: &OpenTransaction) -> BoxFuture<'_, bool> {
        let work = (self.work)(opened);
        let kept = &mut self.result;
        Box::pin(async move { kept.insert(work.await).is_ok() })
    }
}
