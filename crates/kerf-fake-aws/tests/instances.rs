//! Instances live by the clock, calls are counted, and the queue tells what happens.
#![expect(clippy::unwrap_used, reason = "the helpers of a test may panic as the test itself does")]

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kerf_aws_client::{Aws, all_pages};
use kerf_aws_model::catalogue::Catalogue;
use kerf_aws_model::messages::{Message, Notice};
use kerf_aws_model::prices::{on_demand_prices, product_queries};
use kerf_aws_wire::{ec2, pricing, sqs, ssm};
use kerf_fake_aws::{FakeAws, Release, Settings};
use kerf_runtime::Clock;
use tokio::time::{Instant, sleep};

#[expect(clippy::unnecessary_wraps, reason = "all members of a request are optional")]
fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn fake(settings: Settings) -> FakeAws {
    let clock = Clock::starting_at("2026-11-16T20:00:00Z".parse::<Timestamp>().unwrap());
    FakeAws::new(settings, Arc::new(Catalogue::built_in().unwrap()), clock)
}

async fn image(aws: &FakeAws) -> Option<String> {
    let parameter = "/aws/service/eks/optimized-ami/1.34/amazon-linux-2023/x86_64/standard/recommended/image_id";
    let request = ssm::GetParameterRequest { name: text(parameter), with_decryption: None };
    aws.get_parameter(&request).await.unwrap().parameter.unwrap().value
}

async fn launch(aws: &FakeAws, market: &str, count: i32) -> Vec<String> {
    let request = ec2::CreateLaunchTemplateRequest {
        launch_template_name: text("template"),
        launch_template_data: Some(ec2::RequestLaunchTemplateData {
            image_id: image(aws).await,
            ..Default::default()
        }),
        ..Default::default()
    };
    aws.create_launch_template(&request).await.unwrap();
    let subnets = aws.describe_subnets(&ec2::DescribeSubnetsRequest::default()).await.unwrap();
    let request = ec2::CreateFleetRequest {
        r#type: text("instant"),
        launch_template_configs: vec![ec2::FleetLaunchTemplateConfigRequest {
            launch_template_specification: Some(ec2::FleetLaunchTemplateSpecificationRequest {
                launch_template_name: text("template"),
                version: text("$Latest"),
                ..Default::default()
            }),
            overrides: vec![ec2::FleetLaunchTemplateOverridesRequest {
                instance_type: text("m5.large"),
                subnet_id: subnets.subnets[0].subnet_id.clone(),
                ..Default::default()
            }],
        }],
        tag_specifications: vec![ec2::TagSpecification {
            resource_type: text("instance"),
            tags: vec![ec2::Tag { key: text("pool"), value: text("default") }],
        }],
        target_capacity_specification: Some(ec2::TargetCapacitySpecificationRequest {
            default_target_capacity_type: text(market),
            total_target_capacity: Some(count),
        }),
        ..Default::default()
    };
    aws.create_fleet(&request).await.unwrap().instances.remove(0).instance_ids
}

async fn state(aws: &FakeAws, id: &str) -> Result<String, String> {
    let request =
        ec2::DescribeInstancesRequest { instance_ids: vec![id.to_owned()], ..Default::default() };
    let found = aws.describe_instances(&request).await;
    let found = found.map_err(|error| error.code().unwrap_or_default().to_owned())?;
    Ok(found.reservations[0].instances[0].state.clone().unwrap().name.unwrap())
}

#[tokio::test(start_paused = true)]
async fn an_instance_lives_by_the_clock() {
    let aws = fake(Settings::default());
    let id = launch(&aws, "on-demand", 1).await.remove(0);
    let gone = || Err("InvalidInstanceID.NotFound".to_owned());
    assert_eq!(state(&aws, &id).await, gone(), "not visible yet");
    sleep(Duration::from_secs(3)).await;
    assert_eq!(state(&aws, &id).await, Ok("pending".to_owned()));
    sleep(Duration::from_secs(10)).await;
    assert_eq!(state(&aws, &id).await, Ok("running".to_owned()));
    let request = ec2::TerminateInstancesRequest { instance_ids: vec![id.clone()], dry_run: None };
    aws.terminate_instances(&request).await.unwrap();
    assert_eq!(state(&aws, &id).await, Ok("shutting-down".to_owned()));
    sleep(Duration::from_secs(40)).await;
    assert_eq!(state(&aws, &id).await, Ok("terminated".to_owned()));
    aws.terminate_instances(&request).await.unwrap();
    sleep(Duration::from_hours(1)).await;
    assert_eq!(state(&aws, &id).await, gone());
}

#[tokio::test(start_paused = true)]
async fn a_spot_instance_is_taken_two_minutes_after_the_warning() {
    let aws = fake(Settings::instant());
    let id = launch(&aws, "spot", 1).await.remove(0);
    let instance = aws.instances().remove(0);
    assert_eq!(instance.instance_lifecycle.as_deref(), Some("spot"));
    assert!(instance.spot_instance_request_id.is_some());
    let url = aws
        .get_queue_url(&sqs::GetQueueUrlRequest { queue_name: text("test"), ..Default::default() })
        .await
        .unwrap()
        .queue_url;
    let receive = || {
        let request = sqs::ReceiveMessageRequest {
            max_number_of_messages: Some(10),
            queue_url: url.clone(),
            visibility_timeout: Some(20),
            wait_time_seconds: Some(20),
        };
        let aws = aws.clone();
        async move { aws.receive_message(&request).await.unwrap().messages }
    };
    let first = receive().await;
    assert!(first.iter().all(|message| {
        Message::read(message.body.as_deref().unwrap()).unwrap().notice == Notice::Other
    }));
    for message in &first {
        let receipt_handle = message.receipt_handle.clone();
        let request = sqs::DeleteMessageRequest { queue_url: url.clone(), receipt_handle };
        aws.delete_message(&request).await.unwrap();
    }
    let begin = Instant::now();
    assert_eq!(receive().await, []);
    assert_eq!(begin.elapsed().as_secs(), 20, "a long poll");

    // A message that comes while a poll waits ends it.
    let poll = tokio::spawn(receive());
    sleep(Duration::from_secs(5)).await;
    aws.interrupt_spot(&id);
    let messages = poll.await.unwrap();
    let notice = Message::read(messages[0].body.as_deref().unwrap()).unwrap().notice;
    assert_eq!(notice, Notice::SpotInterruption { instance: id.clone() });
    let begin = Instant::now();
    let again = receive().await;
    assert_eq!(begin.elapsed().as_secs(), 20, "visible again when it was not deleted");
    assert_eq!(again[0].message_id, messages[0].message_id);

    sleep(Duration::from_secs(99)).await;
    assert_eq!(aws.alive(), [id]);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(aws.alive(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn too_many_calls_are_refused() {
    let aws = fake(Settings { throttle: true, ..Settings::instant() });
    let request = ec2::DescribeInstancesRequest::default();
    let mut refused = 0;
    for _ in 0..110 {
        if let Err(error) = aws.describe_instances(&request).await {
            assert!(error.is_throttled(), "{error}");
            refused += 1;
        }
    }
    assert_eq!(refused, 10);
    sleep(Duration::from_secs(1)).await;
    assert!(aws.describe_instances(&request).await.is_ok());
    let calls = aws.calls();
    assert_eq!(calls["DescribeInstances"].made, 111);
    assert_eq!(calls["DescribeInstances"].refused["RequestLimitExceeded"], 10);
}

#[tokio::test(start_paused = true)]
async fn instances_are_found_by_tags_and_in_pages() {
    let aws = fake(Settings::instant());
    let mut ids = launch(&aws, "on-demand", 12).await;
    ids.sort_unstable();
    let filter =
        |name: &str, value: &str| ec2::Filter { name: text(name), values: vec![value.to_owned()] };
    let list = |filters| ec2::DescribeInstancesRequest {
        filters,
        max_results: Some(5),
        ..Default::default()
    };
    let request =
        list(vec![filter("tag:pool", "default"), filter("instance-state-name", "running")]);
    let found = all_pages(&aws, request).await.unwrap();
    let found: Vec<_> =
        found.into_iter().map(|one| one.instances[0].instance_id.clone().unwrap()).collect();
    assert_eq!(found, ids);
    assert_eq!(aws.count("DescribeInstances"), 3);
    assert_eq!(all_pages(&aws, list(vec![filter("tag-key", "other")])).await.unwrap(), []);
}

#[tokio::test(start_paused = true)]
async fn prices_are_those_of_the_catalogue_and_spot_is_cheaper() {
    let aws = fake(Settings::instant());
    let [machines, metal] = product_queries("us-west-2").unwrap();
    let mut prices = std::collections::BTreeMap::new();
    for query in [machines, metal] {
        let filters = query.into_iter().map(|(field, value)| pricing::Filter {
            field: text(field),
            r#type: text("TERM_MATCH"),
            value: text(value),
        });
        let request = pricing::GetProductsRequest {
            filters: filters.collect(),
            service_code: text("AmazonEC2"),
            ..Default::default()
        };
        let entries = all_pages(&aws, request).await.unwrap();
        let (some, errors) = on_demand_prices(entries.iter().map(String::as_str), "USD");
        assert!(errors.is_empty() && !some.is_empty());
        prices.extend(some);
    }
    let catalogue = Catalogue::built_in().unwrap();
    let known = catalogue.prices("us-west-2").unwrap();
    assert_eq!(Some(prices["m5.large"]), known.on_demand("m5.large"));
    let request = ec2::DescribeSpotPriceHistoryRequest {
        instance_types: vec!["m5.large".to_owned()],
        product_descriptions: vec!["Linux/UNIX".to_owned()],
        start_time: Some("2026-11-16T20:00:00Z".parse().unwrap()),
        ..Default::default()
    };
    let spot = all_pages(&aws, request).await.unwrap();
    assert_eq!(spot.len(), 4, "one per zone");
    for row in spot {
        let price: kerf_model::Price = row.spot_price.unwrap().parse().unwrap();
        assert!(price < prices["m5.large"] && price > kerf_model::Price::ZERO);
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_moves_the_parameter_and_deprecation_hides_an_image() {
    let aws = fake(Settings::instant());
    let before = image(&aws).await.unwrap();
    aws.publish(Release::Al2023("v20261116"));
    let after = image(&aws).await.unwrap();
    assert_ne!(before, after);
    aws.deprecate_image(&before, "2026-11-16T20:00:00Z".parse().unwrap());
    let filters =
        vec![ec2::Filter { name: text("image-id"), values: vec![before.clone(), after.clone()] }];
    let request = ec2::DescribeImagesRequest { filters, ..Default::default() };
    let ids = |images: Vec<ec2::Image>| -> Vec<_> {
        images.into_iter().filter_map(|image| image.image_id).collect()
    };
    assert_eq!(ids(all_pages(&aws, request.clone()).await.unwrap()), [after]);
    let request = ec2::DescribeImagesRequest { include_deprecated: Some(true), ..request };
    assert_eq!(all_pages(&aws, request).await.unwrap().len(), 2);
}
