//! An account of AWS as the cloud of a story.

use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kerf_aws_api::{GROUP, KIND, PLURAL, VERSION, additions};
use kerf_aws_model::catalogue::Catalogue;
use kerf_aws_model::instance_types::{CniSettings, Settings};
use kerf_aws_model::prices::Prices;
use kerf_fake_aws::{Delays, FakeAws, Gate, KubeletSettings, Kubelets};
use kerf_model::InstanceType;
use kerf_provider::{CloudProvider, NodeClassKind};
use kerf_provider_aws::{Connection, Options, Parts};
use kerf_provider_kwok::KwokProvider;
use kerf_stories::clouds::Cloud;
use kerf_testbed::{KUBERNETES_VERSION, Testbed};
use serde_json::Value;

use crate::{machines, words};

static CATALOGUE: LazyLock<Arc<Catalogue>> = LazyLock::new(|| Arc::new(machines::catalogue()));

/// Needed so often that no subnet runs out of them by chance.
pub(crate) const ADDRESSES: u32 = 65_000;

/// An account and a cluster in it. Operators that are started are connected to it.
#[derive(Debug)]
pub struct AwsStage {
    settings: kerf_fake_aws::Settings,
    kubelets: KubeletSettings,
    account: OnceLock<FakeAws>,
    /// What the next operator is behind.
    gate: Mutex<Option<Arc<dyn Gate>>>,
}

impl AwsStage {
    /// A cloud that takes no time, as KWOK is.
    pub fn instant() -> Self {
        let kubelets = KubeletSettings { boot: Duration::ZERO, ..KubeletSettings::default() };
        Self::new(kerf_fake_aws::Settings::instant(), kubelets)
    }

    /// A cloud as slow as the real one, whose ids, prices and faults follow from the seed.
    pub fn lifelike(seed: u64) -> Self {
        let settings = kerf_fake_aws::Settings { seed, ..kerf_fake_aws::Settings::default() };
        Self::new(settings, KubeletSettings::default())
    }

    /// The same, in which spot instances live for hours, and which forgets no instance for two days.
    pub fn stormy(seed: u64) -> Self {
        let mut stage = Self::lifelike(seed);
        stage.settings.spot_life = Some(Duration::from_hours(6));
        stage.settings.delays.instance_remembered = Duration::from_hours(48);
        stage
    }

    fn new(settings: kerf_fake_aws::Settings, kubelets: KubeletSettings) -> Self {
        let settings = kerf_fake_aws::Settings {
            region: machines::REGION.to_owned(),
            kubernetes_version: KUBERNETES_VERSION.to_owned(),
            zones: 4,
            subnet_addresses: ADDRESSES,
            delays: Delays { no_answer: Duration::from_secs(30), ..settings.delays },
            ..settings
        };
        Self { settings, kubelets, account: OnceLock::new(), gate: Mutex::default() }
    }

    /// The account, once the story has begun.
    pub fn aws(&self) -> &FakeAws {
        self.account.get().unwrap_or_else(|| panic!("the story has not begun"))
    }

    /// The next operator that is started, and no other, is behind this gate.
    pub fn put_next_behind(&self, gate: Arc<dyn Gate>) {
        *self.gate.lock().unwrap_or_else(PoisonError::into_inner) = Some(gate);
    }
}

impl Cloud for AwsStage {
    fn connect(&self, _: Arc<KwokProvider>) -> Arc<dyn CloudProvider> {
        let aws = self.aws();
        let gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner).take();
        let behind = gate.map_or_else(|| aws.clone(), |gate| aws.behind(gate));
        let known = CATALOGUE.prices(machines::REGION);
        let mut prices = known.map(Prices::new).unwrap_or_default();
        machines::set_spot_prices(aws, &mut prices, Timestamp::UNIX_EPOCH);
        let region = CATALOGUE.region(machines::REGION);
        Arc::new(Connection::started(Parts {
            aws: Arc::new(behind),
            clock: aws.clock().clone(),
            options: Options {
                cluster_name: self.settings.cluster.clone(),
                interruption_queue: Some(self.settings.queue.clone()),
                ..Options::default()
            },
            cluster: aws.cluster(),
            kubernetes_version: self.settings.kubernetes_version.clone(),
            catalogue: Arc::clone(&CATALOGUE),
            settings: Settings {
                region: machines::REGION.to_owned(),
                vm_memory_overhead: 0.075,
                reserved_enis: 0,
                cni: CniSettings::default(),
                reserved_capacity: true,
            },
            region: region.unwrap_or_else(|| panic!("the region is in the catalogue")),
            prices,
        }))
    }

    fn node_class(&self) -> NodeClassKind {
        let text = |text: &str| text.to_owned();
        NodeClassKind {
            group: text(GROUP),
            version: text(VERSION),
            kind: text(KIND),
            plural: text(PLURAL),
        }
    }

    fn instance_types(&self) -> Vec<InstanceType> {
        machines::instance_types().collect()
    }

    fn crds(&self) -> Vec<CustomResourceDefinition> {
        kerf_api::crd::crds(&[additions()])
    }

    fn begin(&self, testbed: &Testbed) {
        let clock = testbed.clock().clone();
        let aws = FakeAws::new(self.settings.clone(), Arc::clone(&CATALOGUE), clock);
        let kubelets = Kubelets::new(aws.clone(), testbed.client(), self.kubelets.clone());
        tokio::spawn(kubelets.run());
        let taken = self.account.set(aws);
        assert!(taken.is_ok(), "a stage serves one story");
    }

    fn translate(&self, object: &mut Value) {
        words::translate(object);
    }

    fn translate_back(&self, object: &mut Value) {
        words::translate_back(object);
    }
}
