//! What goes wrong: too many calls, calls that are not allowed, and faults on demand or by chance.

use std::collections::{BTreeMap, BTreeSet};

use kerf_aws_client::bucket;
use kerf_aws_wire::{Protocol, Service};
use kerf_runtime::Tokens;

use crate::chance;
use crate::refused::Refused;

/// How a call goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is refused, and nothing was done.
    Refuse(Refused),
    /// There is no answer, and nothing was done.
    NoAnswer,
    /// It was done, and there is no answer.
    LostAnswer,
}

impl Fault {
    /// A service that fails on its side.
    pub fn internal() -> Self {
        Self::Refuse(Refused::with_status(500, "InternalError", "An internal error has occurred"))
    }

    pub fn unavailable() -> Self {
        let message = "The server is overloaded and can't handle the request.";
        Self::Refuse(Refused::with_status(503, "Unavailable", message))
    }
}

/// How often calls go wrong by chance: shares of 1, by kind. The seed decides which calls.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FaultRates {
    pub internal: f64,
    pub unavailable: f64,
    pub no_answer: f64,
    pub lost_answer: f64,
}

#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// By action: what is to happen with the next so many calls.
    next: BTreeMap<String, Vec<(u32, Fault)>>,
    pub(crate) rates: FaultRates,
    drawn: u64,
    /// Actions that the role may not take, as IAM writes them: `ec2:CreateFleet`
    pub(crate) denied: BTreeSet<String>,
    buckets: BTreeMap<&'static str, Tokens>,
}

impl Faults {
    pub(crate) fn fail_next(&mut self, operation: &str, times: u32, fault: Fault) {
        self.next.entry(operation.to_owned()).or_default().push((times, fault));
    }

    /// Whether the role may do it. EC2 says so with another code than the other services.
    pub(crate) fn check_policy(&self, service: &Service, operation: &str) -> Result<(), Refused> {
        let action = format!("{}:{operation}", service.signing_name);
        if !self.denied.contains(&action) {
            return Ok(());
        }
        let message = format!("You are not authorized to perform this operation: {action}");
        let code = match service.protocol {
            Protocol::Ec2 { .. } => "UnauthorizedOperation",
            Protocol::Query { .. } => "AccessDenied",
            Protocol::Json { .. } | Protocol::RestJson => "AccessDeniedException",
        };
        Err(Refused::with_status(403, code, message))
    }

    /// EC2 counts the calls of each action.
    pub(crate) fn throttle(
        &mut self,
        service: &Service,
        operation: &'static str,
    ) -> Result<(), Refused> {
        let Some(bucket) = bucket(service, operation) else { return Ok(()) };
        let tokens = self.buckets.entry(operation).or_insert_with(|| Tokens::full(bucket));
        if tokens.try_take() {
            return Ok(());
        }
        Err(Refused::with_status(503, "RequestLimitExceeded", "Request limit exceeded."))
    }

    /// What goes wrong with this call, if anything.
    pub(crate) fn draw(&mut self, operation: &str, seed: u64) -> Option<Fault> {
        if let Some(planned) = self.next.get_mut(operation)
            && let Some((times, fault)) = planned.first_mut()
        {
            let fault = fault.clone();
            *times = times.saturating_sub(1);
            if *times == 0 {
                planned.remove(0);
            }
            return Some(fault);
        }
        self.drawn += 1;
        let mut share = chance::share(seed, &["fault", operation, &self.drawn.to_string()]);
        let rates = self.rates;
        for (rate, fault) in [
            (rates.internal, Fault::internal()),
            (rates.unavailable, Fault::unavailable()),
            (rates.no_answer, Fault::NoAnswer),
            (rates.lost_answer, Fault::LostAnswer),
        ] {
            if share < rate {
                return Some(fault);
            }
            share -= rate;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use kerf_aws_wire::{ec2, eks, iam, ssm};

    use super::*;

    #[test]
    fn what_is_planned_comes_first_and_once() {
        let mut faults = Faults::default();
        faults.fail_next("CreateFleet", 2, Fault::LostAnswer);
        faults.fail_next("CreateFleet", 1, Fault::internal());
        let drawn: Vec<_> = (0..4).map(|_| faults.draw("CreateFleet", 0)).collect();
        let lost = || Some(Fault::LostAnswer);
        assert_eq!(drawn, [lost(), lost(), Some(Fault::internal()), None]);
        assert_eq!(faults.draw("CreateTags", 0), None);
    }

    #[test]
    fn chance_keeps_to_its_rates_and_to_its_seed() {
        let rates = FaultRates { internal: 0.1, lost_answer: 0.05, ..FaultRates::default() };
        let draw = |seed| {
            let mut faults = Faults { rates, ..Faults::default() };
            (0..2000).map(|_| faults.draw("CreateFleet", seed)).collect::<Vec<_>>()
        };
        let drawn = draw(1);
        assert_eq!(drawn, draw(1));
        assert_ne!(drawn, draw(2));
        let count = |fault: &Fault| drawn.iter().flatten().filter(|one| *one == fault).count();
        assert!((150..250).contains(&count(&Fault::internal())), "{}", count(&Fault::internal()));
        assert!((60..140).contains(&count(&Fault::LostAnswer)));
        assert_eq!(count(&Fault::NoAnswer), 0);
    }

    #[test]
    fn a_denied_action_has_the_code_of_its_service() {
        let denied = ["ec2:CreateFleet", "iam:GetInstanceProfile", "ssm:GetParameter"];
        let faults = Faults { denied: denied.map(str::to_owned).into(), ..Faults::default() };
        for (service, operation, expect) in [
            (&ec2::SERVICE, "CreateFleet", Some("UnauthorizedOperation")),
            (&ec2::SERVICE, "CreateTags", None),
            (&iam::SERVICE, "GetInstanceProfile", Some("AccessDenied")),
            (&ssm::SERVICE, "GetParameter", Some("AccessDeniedException")),
            (&eks::SERVICE, "DescribeCluster", None),
        ] {
            let result = faults.check_policy(service, operation);
            assert_eq!(result.err().map(|refused| refused.code).as_deref(), expect, "{operation}");
        }
    }
}
