//! The policies under which a record is played again.

use kerf_simulation::{BASELINE, Policy, PolicyError};

/// The pools as they are under Karpenter's rules: what the running autoscaler should have done. Its replay beside what happened says
/// how far to trust the others.
pub const CALIBRATION: &str = "karpenter";
/// Played where nothing else is asked for.
const DEFAULT: [&str; 4] = [CALIBRATION, kerf_simulation::DEFAULTS, "all-controls", BASELINE];

/// The built-in policies of `kerf simulate` for a cluster that has its own: they leave each pool its `consolidationPolicy`, but for
/// those that are about it.
pub fn policies() -> Vec<Policy> {
    let built_in = Policy::built_in();
    let parity = built_in.iter().find(|policy| policy.name == "parity").cloned();
    let calibration = parity.map(|parity| Policy {
        name: CALIBRATION.to_owned(),
        description: "your pools under Karpenter's rules".to_owned(),
        ..parity
    });
    let about_it = [BASELINE, "balanced"];
    let mut all: Vec<Policy> = calibration.into_iter().chain(built_in).collect();
    for policy in all.iter_mut().filter(|policy| !about_it.contains(&policy.name.as_str())) {
        policy.disruption.remove("consolidationPolicy");
    }
    // What it stands for is in it under another name.
    all.retain(|policy| policy.name != "parity");
    all
}

/// The policies of these names; without names, the ones that a report has. The calibration is always among them.
pub fn by_name(names: &[String]) -> Result<Vec<Policy>, PolicyError> {
    let mut wanted = vec![CALIBRATION.to_owned()];
    if names.is_empty() {
        wanted.extend(DEFAULT.map(str::to_owned));
    } else {
        wanted.extend(names.iter().cloned());
    }
    Policy::named(&wanted, &policies())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_keep_their_policy_unless_that_is_what_a_policy_is_about() {
        for policy in policies() {
            let says = policy.disruption.contains_key("consolidationPolicy");
            let about_it = ["when-empty", "balanced"].contains(&policy.name.as_str());
            assert_eq!(says, about_it, "{}", policy.name);
        }
    }

    #[test]
    fn the_calibration_is_always_played() {
        let names = |wanted: &[&str]| -> Vec<String> {
            let wanted: Vec<_> = wanted.iter().map(|name| (*name).to_owned()).collect();
            by_name(&wanted).unwrap().into_iter().map(|policy| policy.name).collect()
        };
        assert_eq!(names(&[]), ["karpenter", "kerf-defaults", "all-controls", "when-empty"]);
        assert_eq!(names(&["balanced"]), ["karpenter", "balanced"]);
        assert!(by_name(&["x".to_owned()]).is_err());
    }
}
