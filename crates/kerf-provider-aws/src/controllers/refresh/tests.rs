use std::sync::LazyLock;

use kerf_api::NodeClass;
use kerf_aws_api::{GROUP, KIND};
use kerf_aws_model::{catalogue::Catalogue, instance_types::Settings, prices::Prices};
use kerf_aws_wire::ec2::DescribeSpotPriceHistoryRequest;
use kerf_fake_aws::FakeAws;
use kerf_model::Price;
use kerf_runtime::Clock;
use serde_json::json;
use tokio::time::sleep;

use super::*;
use crate::{Options, Parts};

static CATALOGUE: LazyLock<Arc<Catalogue>> =
    LazyLock::new(|| Arc::new(Catalogue::built_in().unwrap()));

const REGION: &str = "us-west-2";

fn start() -> (FakeAws, AwsCloud, NodeClass) {
    let clock = Clock::starting_at("2026-11-16T20:00:00Z".parse().unwrap());
    let settings = kerf_fake_aws::Settings::instant();
    let aws = FakeAws::new(settings, Arc::clone(&CATALOGUE), clock.clone());
    let cloud = AwsCloud::new(Parts {
        aws: Arc::new(aws.clone()),
        clock,
        options: Options::default(),
        cluster: aws.cluster(),
        kubernetes_version: "1.34".to_owned(),
        settings: Settings { region: REGION.to_owned(), ..Settings::default() },
        catalogue: Arc::clone(&CATALOGUE),
        region: CATALOGUE.region(REGION).unwrap(),
        prices: Prices::new(CATALOGUE.prices(REGION).unwrap()),
    });
    let class = json!({
        "metadata": {"name": "default", "uid": "class", "resourceVersion": "1"},
        "spec": {"instanceProfile": "nodes", "amiSelectorTerms": [{"alias": "al2023@latest"}]},
        "status": aws.class_status("nodes"),
    });
    let class = NodeClass::from_object(GROUP, KIND, serde_json::from_value(class).unwrap());
    (aws, cloud, class)
}

fn spot_price(cloud: &AwsCloud, class: &NodeClass) -> Price {
    let of_class = cloud.offers().of(class).unwrap();
    let instance_type = of_class.instance_type("m5.large").unwrap();
    instance_type.offering_price("us-west-2a", "spot").unwrap()
}

#[tokio::test(start_paused = true)]
async fn spot_prices_are_read_again_where_nodes_can_be_launched() {
    let (aws, cloud, class) = start();
    let reads = || aws.requests::<DescribeSpotPriceHistoryRequest>();
    spot_prices(&cloud).await.unwrap();
    assert!(reads().is_empty(), "no class has a zone yet");
    assert_eq!(spot_price(&cloud, &class), "0.096".parse().unwrap(), "as much as on demand");

    aws.set_spot_price("m5.large", "us-west-2a", "0.04".parse().unwrap());
    let mut changes = cloud.offers().changes();
    spot_prices(&cloud).await.unwrap();
    assert_eq!(spot_price(&cloud, &class), "0.04".parse().unwrap());
    assert!(changes.has_changed().unwrap(), "the operator looks again");
    changes.mark_unchanged();
    let zones = reads().pop().unwrap().1.filters.pop().unwrap();
    assert_eq!(zones.name.as_deref(), Some("availability-zone"));
    assert_eq!(zones.values, ["us-west-2a", "us-west-2b", "us-west-2c"]);

    let count = reads().len();
    spot_prices(&cloud).await.unwrap();
    assert_eq!(reads().len(), count, "they are young");
    sleep(SPOT).await;
    spot_prices(&cloud).await.unwrap();
    assert!(reads().len() > count && !changes.has_changed().unwrap(), "they are the same");

    sleep(SPOT).await;
    aws.deny("ec2:DescribeSpotPriceHistory");
    spot_prices(&cloud).await.unwrap_err();
    assert_eq!(spot_price(&cloud, &class), "0.04".parse().unwrap(), "what was read stays");
    let [_, (capacity_type, age)] = cloud.offers().ages_of_prices();
    let age = age.map(|age| age.as_mins());
    assert_eq!((capacity_type, age), ("spot", Some(12)), "and its age is known");
}

#[tokio::test(start_paused = true)]
async fn types_and_on_demand_prices_are_read_twice_a_day() {
    let (aws, cloud, _) = start();
    for (passes, expected) in [(1, 1), (11, 1), (2, 2)] {
        for _ in 0..passes {
            types(&cloud).await.unwrap();
            on_demand_prices(&cloud).await.unwrap();
            sleep(LOOK_AT_AGE).await;
        }
        let first_pages = aws.requests::<kerf_aws_wire::pricing::GetProductsRequest>();
        let first_pages = first_pages.iter().filter(|(_, one)| one.next_token.is_none());
        // One query for virtual machines and one for bare metal.
        assert_eq!(first_pages.count(), expected * 2);
        let offerings = aws.requests::<kerf_aws_wire::ec2::DescribeInstanceTypeOfferingsRequest>();
        let first_pages = offerings.iter().filter(|(_, one)| one.next_token.is_none());
        assert_eq!(first_pages.count(), expected);
    }
}
