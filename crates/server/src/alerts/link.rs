//! Where people see the target of an alert.

use std::net::SocketAddr;

use windlass::store::AlertTarget;
use windlass_http::encode_segment;

use crate::settings::Settings;

/// The path of the page about a target.
pub(crate) fn path_of(target: &AlertTarget) -> String {
    match target {
        AlertTarget::Queue { .. } => "/queues".to_owned(),
        AlertTarget::Kind { kind } => format!("/jobs?state=failed&kind={}", encode_segment(kind)),
        AlertTarget::Job { job } => format!("/jobs/{job}"),
        AlertTarget::Branch { job, branch } => format!("/jobs/{job}/branches/{}", encode_segment(branch)),
        AlertTarget::Schedule { .. } => "/schedules".to_owned(),
        AlertTarget::Worker { .. } => "/workers".to_owned(),
    }
}

/// The address of this server as people reach it: the one of its settings, or else what can be concluded from its name and from where it
/// listens; `None` if that is nothing that anybody could open.
pub(crate) fn base(settings: &Settings, address: SocketAddr) -> Option<String> {
    if let Some(url) = &settings.public_url {
        return Some(url.trim_end_matches('/').to_owned());
    }
    let is_behind_proxy = !settings.trusted_proxies.is_empty();
    let scheme = if settings.tls.is_some() || is_behind_proxy { "https" } else { "http" };
    match settings.hosts.first() {
        // The proxy has the usual port.
        Some(host) if is_behind_proxy => Some(format!("{scheme}://{host}")),
        Some(host) => Some(format!("{scheme}://{host}:{}", address.port())),
        None if address.ip().is_unspecified() || is_behind_proxy => None,
        None => Some(format!("{scheme}://{address}")),
    }
}

#[cfg(test)]
mod tests {
    use windlass::JobId;

    use super::*;

    #[test]
    fn a_target_has_a_page() {
        let job = JobId::from_parts(1, 0, 0);
        let branch = AlertTarget::Branch { job, branch: "a/b".into() };
        assert_eq!(path_of(&branch), format!("/jobs/{job}/branches/a%2Fb"));
        assert_eq!(path_of(&AlertTarget::Kind { kind: "a&b".into() }), "/jobs?state=failed&kind=a%26b");
    }

    #[test]
    fn the_address_of_a_server_is_set_or_concluded() {
        let at = |text: &str| text.parse::<SocketAddr>().expect("an address");
        let with = |change: fn(&mut Settings)| {
            let mut settings = Settings::default();
            change(&mut settings);
            settings
        };
        assert_eq!(
            base(&Settings::default(), at("127.0.0.1:7077")).as_deref(),
            Some("http://127.0.0.1:7077")
        );
        assert_eq!(base(&Settings::default(), at("0.0.0.0:7077")), None);
        let named = with(|settings| settings.hosts = vec!["jobs.example".into()]);
        assert_eq!(base(&named, at("0.0.0.0:7077")).as_deref(), Some("http://jobs.example:7077"));
        let proxied = with(|settings| {
            settings.hosts = vec!["jobs.example".into()];
            settings.trusted_proxies = vec!["127.0.0.1".parse().expect("a network")];
        });
        assert_eq!(base(&proxied, at("127.0.0.1:7077")).as_deref(), Some("https://jobs.example"));
        let set = with(|settings| settings.public_url = Some("https://jobs.example/windlass/".into()));
        assert_eq!(base(&set, at("127.0.0.1:7077")).as_deref(), Some("https://jobs.example/windlass"));
    }
}
