//! Tasks and threads.

use std::{future::Future, io, thread};

use tokio::{
    runtime::{Builder, Handle},
    task::JoinHandle,
};

use crate::Env;

impl Env {
    /// Runs `task` on the runtime that the caller is on.
    pub fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        tokio::spawn(task)
    }

    /// Runs `work`, which may block, on a thread for such work.
    pub fn spawn_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        tokio::task::spawn_blocking(work)
    }

    /// The runtime that the caller is on, to spawn on it from elsewhere.
    pub fn runtime(&self) -> Handle {
        Handle::current()
    }

    /// Runs `task` on a thread of its own with a runtime of its own, which code that blocks all other threads does not hold
    /// up. When the task ends, so does the thread; it does not wait for blocking work that the task has left behind.
    pub fn spawn_thread<F>(
        &self,
        name: &str,
        task: impl FnOnce() -> F + Send + 'static,
    ) -> io::Result<thread::JoinHandle<()>>
    where
        F: Future<Output = ()>,
    {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        thread::Builder::new().name(name.to_owned()).spawn(move || {
            runtime.block_on(task());
            runtime.shutdown_background();
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_thread_has_its_name_and_ends_although_blocking_work_is_left() {
        let (sender, receiver) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let env = Env::real();
        let inner = env.clone();
        let thread = env.spawn_thread("windlass-test", move || async move {
            let _left = inner.spawn_blocking(move || released.recv());
            sender.send(thread::current().name().map(str::to_owned)).expect("a receiver");
        });
        assert_eq!(receiver.recv().expect("a name").as_deref(), Some("windlass-test"));
        thread.expect("a thread").join().expect("no panic");
        drop(release);
    }
}
