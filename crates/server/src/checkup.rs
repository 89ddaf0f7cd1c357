//! The check-up of the installation: one at a time, because each opens connections of its own. Who asks meanwhile gets the result of one that
//! began after they asked.

use std::sync::Arc;

use tokio::{sync::Mutex, time::Instant};
use windlass::{
    Engine,
    operate::doctor::{self, Finding},
};

/// The last check-up.
#[derive(Default)]
pub(crate) struct CheckUp {
    last: Mutex<Option<(Instant, Arc<Vec<Finding>>)>>,
}

impl CheckUp {
    /// What a check-up found that began after this was called.
    pub(crate) async fn run(&self, engine: &Engine) -> Arc<Vec<Finding>> {
        let asked_at = Instant::now();
        let mut last = self.last.lock().await;
        if let Some((began_at, findings)) = &*last
            && *began_at > asked_at
        {
            return Arc::clone(findings);
        }
        let began_at = Instant::now();
        let store = doctor::check_store(engine.url()).await;
        let mut findings = store.findings;
        if store.is_usable {
            findings.extend(engine.operator().doctor().await);
        }
        let findings = Arc::new(findings);
        *last = Some((began_at, Arc::clone(&findings)));
        findings
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn requests_of_the_same_moment_share_a_check_up() {
        let (engine, checkup) = (Engine::open("memory:").await.expect("an engine"), CheckUp::default());
        let first = checkup.run(&engine).await;
        let busy = checkup.last.lock().await;
        let mut three = std::pin::pin!(async {
            tokio::join!(checkup.run(&engine), checkup.run(&engine), checkup.run(&engine))
        });
        assert!(three.as_mut().now_or_never().is_none(), "they wait for their turn");
        drop(busy);
        let (one, two, three) = three.await;
        assert!(!Arc::ptr_eq(&first, &one), "an old one is not used");
        assert!(Arc::ptr_eq(&one, &two) && Arc::ptr_eq(&one, &three));
    }
}
