//! What the provider finds out before it works.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use kerf_fake_aws::{FakeAws, Settings};
use kerf_provider::{CloudProvider, Registry};
use kerf_runtime::Metrics;
use kerf_testbed::Testbed;
use kube::Api;
use serde_json::json;

use crate::account::{CATALOGUE, unstarted};

fn account(testbed: &Testbed) -> FakeAws {
    FakeAws::new(Settings::instant(), Arc::clone(&CATALOGUE), testbed.clock().clone())
}

#[test]
fn a_provider_that_has_started_is_ready_and_knows_prices_and_types() {
    Testbed::in_virtual_time(async {
        let testbed = Testbed::builder().start().unwrap();
        let services: Api<Service> = Api::namespaced(testbed.client(), "kube-system");
        let dns = json!({"metadata": {"name": "kube-dns"}, "spec": {"clusterIP": "10.100.0.10"}});
        let dns: Service = serde_json::from_value(dns).unwrap();
        services.create(&kube::api::PostParams::default(), &dns).await.unwrap();
        let (aws, metrics) = (account(&testbed), Metrics::default());
        let connection = unstarted(&testbed, &aws, &metrics, &[]);
        assert_eq!(connection.ready(), Err("the AWS provider has not started yet".to_owned()));
        connection.start().await.unwrap();
        assert_eq!(connection.ready(), Ok(()));
        let text = metrics.text();
        for capacity_type in ["on-demand", "spot"] {
            let age = format!("kerf_aws_prices_age_seconds{{capacity_type=\"{capacity_type}\"}} 0");
            assert!(text.contains(&age), "{age} in {text}");
        }
        let mut registry = Registry::default();
        Arc::clone(&connection).controllers(&mut registry);
        assert!(!registry.tasks.is_empty());
        let calls = aws.calls().len();
        connection.start().await.unwrap();
        assert_eq!(aws.calls().len(), calls, "what has started does not start again");
    })
    .unwrap();
}

/// What the role may not do, the flags, and what is said; nothing where it starts all the same.
type Case<'a> = (&'a str, &'a [(&'static str, &'a str)], Option<&'a str>);

#[test]
fn what_is_missing_is_said_and_found_later() {
    let endpoint = [("cluster-endpoint", "https://cluster.example.com")];
    let by_eks = [endpoint[0], ("eks-control-plane", "true")];
    let cases: [Case<'_>; 7] = [
        ("ec2:DescribeInstanceTypes", &[], Some("EC2 cannot be called: ")),
        (
            "ec2:DescribeInstanceTypeOfferings",
            &[],
            Some("the instance types of us-west-2 are not known: "),
        ),
        ("eks:DescribeCluster", &[], Some("allow eks:DescribeCluster, or set --cluster-endpoint")),
        ("eks:DescribeCluster", &endpoint, None),
        ("eks:DescribeCluster", &by_eks, Some("the version of the cluster is not known: ")),
        ("pricing:GetProducts", &[], None),
        ("ec2:DescribeSpotPriceHistory", &[], None),
    ];
    for (denied, flags, expected) in cases {
        Testbed::in_virtual_time(async {
            let testbed = Testbed::builder().start().unwrap();
            let (aws, metrics) = (account(&testbed), Metrics::default());
            let connection = unstarted(&testbed, &aws, &metrics, flags);
            aws.deny(denied);
            let started = connection.start().await;
            let Some(expected) = expected else {
                assert_eq!(started, Ok(()), "{denied}");
                return;
            };
            let said = started.unwrap_err().to_string();
            assert!(said.contains(expected), "{denied}: {said}");
            assert!(connection.ready().unwrap_err().contains(expected), "{denied}");
            assert!(connection.list().await.is_err() && connection.changes().is_none());
            aws.allow(denied);
            connection.start().await.unwrap();
            assert_eq!(connection.ready(), Ok(()));
        })
        .unwrap();
    }
}
