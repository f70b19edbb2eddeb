//! The NodeClaim template of a NodePool: what claims are made from, with its instance types as rows of bits.

use std::collections::BTreeMap;
use std::sync::Arc;

use kerf_model::pod::HostPort;
use kerf_model::{InstanceType, Pool, Price, ReservationId};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::algebra::{Algebra, Key, Rule, SetId};
use crate::bits::Bits;
use crate::daemons::Daemon;
use crate::lanes::{LaneTable, Lanes};

/// A row is an instance type together with one of its allocatable groups. Requirements of a claim only
/// narrow and its requests only grow, so a row that fails once fails for good, and a type is alive while any of
/// its rows is.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    pub(crate) pool: Arc<Pool>,
    pub(crate) set: SetId,
    pub(crate) rows: Vec<Row>,
    /// Rows that can be bought and are not overdrawn by daemons.
    pub(crate) usable: Bits,
    pub(crate) capacity: Vec<Lanes>,
    /// By lane, the most that any instance type has.
    pub(crate) largest: Lanes,
    pub(crate) daemon_groups: Vec<DaemonGroup>,
    pub(crate) reserved: Vec<ReservedOffering>,
    /// By row, what is left to pods beside daemons.
    room_of_rows: Vec<Lanes>,
    room: Vec<Thresholds>,
    rules: FxHashMap<Key, KeyRows>,
    /// By driver the limits that types have for its volumes, with the rows of each.
    volume_limits: BTreeMap<String, BTreeMap<u32, Bits>>,
    shapes: Vec<Shape>,
    served: FxHashMap<SetId, Bits>,
    prices: FxHashMap<SetId, Arc<[(Price, u32)]>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) instance_type: u32,
    /// Shape and price of what can be bought; a reservation that is full cannot.
    offerings: Vec<(u32, Price)>,
}

/// Instance types on which the same daemons run.
#[derive(Clone, Debug)]
pub(crate) struct DaemonGroup {
    daemons: Vec<usize>,
    pub(crate) overhead: Lanes,
    pub(crate) ports: Vec<HostPort>,
    pub(crate) rows: Bits,
}

#[derive(Clone, Debug)]
pub(crate) struct ReservedOffering {
    pub(crate) row: u32,
    pub(crate) set: SetId,
    pub(crate) id: ReservationId,
    pub(crate) capacity: u32,
}

/// Rows by how much room they have of one resource.
#[derive(Clone, Debug)]
struct Thresholds {
    /// Distinct amounts, ascending.
    amounts: Vec<i64>,
    /// Per amount the rows that have at least that.
    at_least: Vec<Bits>,
}

/// Rows by what their type says about one key.
#[derive(Clone, Debug, Default)]
struct KeyRows {
    rules: Vec<(Rule, Bits)>,
    named: Bits,
}

/// Offerings that ask for the same, and the rows that have one of them.
#[derive(Clone, Debug)]
struct Shape {
    set: SetId,
    rows: Bits,
}

impl Template {
    pub(crate) fn new(
        pool: &Arc<Pool>,
        lanes: &LaneTable,
        daemons: &[Daemon],
        algebra: &mut Algebra,
    ) -> Self {
        let mut template = Self {
            pool: Arc::clone(pool),
            set: algebra.set(&pool.template_requirements()),
            rows: Vec::new(),
            usable: Bits::default(),
            capacity: Vec::new(),
            largest: smallvec::smallvec![0; lanes.len()],
            daemon_groups: Vec::new(),
            reserved: Vec::new(),
            room_of_rows: Vec::new(),
            room: Vec::new(),
            rules: FxHashMap::default(),
            volume_limits: BTreeMap::new(),
            shapes: Vec::new(),
            served: FxHashMap::default(),
            prices: FxHashMap::default(),
        };
        let mut shape_ids = FxHashMap::default();
        let mut room = Vec::new();
        for (index, instance_type) in pool.instance_types.iter().enumerate() {
            let type_set = algebra.set(instance_type.requirements());
            let group = template.daemon_group(daemons, type_set, lanes, algebra);
            let capacity = lanes.room(instance_type.capacity());
            crate::lanes::raise(&mut template.largest, &capacity);
            template.capacity.push(capacity);
            for allocatable in instance_type.groups() {
                if allocatable.offerings.is_empty() {
                    continue;
                }
                let row = template.rows.len();
                let left = lanes.room(&allocatable.allocatable);
                let overdrawn = left.iter().any(|amount| *amount < 0);
                let mut left_to_pods = left;
                crate::lanes::subtract(&mut left_to_pods, &template.daemon_groups[group].overhead);
                if !overdrawn && left_to_pods.iter().all(|amount| *amount >= 0) {
                    template.usable.insert(row);
                }
                room.push(left_to_pods);
                template.daemon_groups[group].rows.insert(row);
                for (key, rule) in algebra.entries(type_set).to_vec() {
                    template.rules.entry(key).or_default().insert(rule, row);
                }
                for (driver, limit) in instance_type.volume_limits() {
                    let limits = template.volume_limits.entry(driver.clone()).or_default();
                    limits.entry(*limit).or_default().insert(row);
                }
                let mut offerings = Vec::new();
                for at in &allocatable.offerings {
                    let offering = &instance_type.offerings()[*at];
                    let set = algebra.set(&offering.requirements);
                    let shape = *shape_ids.entry(set).or_insert_with(|| {
                        template.shapes.push(Shape { set, rows: Bits::default() });
                        template.shapes.len() - 1
                    });
                    template.shapes[shape].rows.insert(row);
                    if offering.is_launchable() {
                        offerings.push((crate::algebra::id(shape), offering.price));
                    }
                    if offering.is_reserved() {
                        let id = ReservationId::of(offering, instance_type, algebra.labels());
                        template.reserved.push(ReservedOffering {
                            row: crate::algebra::id(row),
                            set,
                            id,
                            capacity: offering.reservation_capacity,
                        });
                    }
                }
                template.rows.push(Row { instance_type: crate::algebra::id(index), offerings });
            }
        }
        template.room = (0..lanes.len()).map(|lane| Thresholds::new(lane, &room)).collect();
        template.room_of_rows = room;
        template
    }

    fn daemon_group(
        &mut self,
        daemons: &[Daemon],
        type_set: SetId,
        lanes: &LaneTable,
        algebra: &mut Algebra,
    ) -> usize {
        let running: Vec<_> = (0..daemons.len())
            .filter(|at| daemons[*at].runs_on_new(&self.pool.taints, self.set, type_set, algebra))
            .collect();
        if let Some(known) = self.daemon_groups.iter().position(|group| group.daemons == running) {
            return known;
        }
        let mut overhead = lanes.zero();
        for daemon in &running {
            crate::lanes::add(&mut overhead, &daemons[*daemon].requests);
        }
        let ports = running.iter().flat_map(|daemon| daemons[*daemon].ports.clone()).collect();
        self.daemon_groups.push(DaemonGroup {
            daemons: running,
            overhead,
            ports,
            rows: Bits::default(),
        });
        self.daemon_groups.len() - 1
    }

    /// Rows whose type goes with these requirements and which have an offering that does.
    pub(crate) fn serving(&mut self, set: SetId, algebra: &mut Algebra) -> &Bits {
        if !self.served.contains_key(&set) {
            let served = self.work_out_serving(set, algebra);
            self.served.insert(set, served);
        }
        &self.served[&set]
    }

    fn work_out_serving(&self, set: SetId, algebra: &mut Algebra) -> Bits {
        let mut serving = self.offered(set, algebra);
        serving.intersect_with(&self.meeting(set, algebra));
        serving
    }

    /// Rows with an offering that goes with these requirements.
    pub(crate) fn offered(&self, set: SetId, algebra: &mut Algebra) -> Bits {
        let mut offered = Bits::default();
        for shape in &self.shapes {
            if algebra.merge(set, shape.set).is_some() {
                offered.union_with(&shape.rows);
            }
        }
        offered
    }

    /// Rows whose type goes with these requirements.
    pub(crate) fn meeting(&self, set: SetId, algebra: &mut Algebra) -> Bits {
        let mut meeting = Bits::full(self.rows.len());
        for (key, rule) in algebra.entries(set).to_vec() {
            let Some(named) = self.rules.get(&key) else { continue };
            let mut with_key = Bits::full(self.rows.len());
            with_key.remove_all(&named.named);
            for (own, rows) in &named.rules {
                if algebra.rules_meet(*own, rule) {
                    with_key.union_with(rows);
                }
            }
            meeting.intersect_with(&with_key);
        }
        meeting
    }

    /// Narrows `rows` to those that have room for the request beside their daemons.
    pub(crate) fn keep_fitting(&self, rows: &mut Bits, request: &[i64]) {
        for (thresholds, amount) in self.room.iter().zip(request) {
            thresholds.keep(rows, *amount);
        }
    }

    /// Whether any of its types limits how many volumes can be attached.
    pub(crate) fn limits_volumes(&self) -> bool {
        !self.volume_limits.is_empty()
    }

    /// Narrows `rows` to those that can attach so many volumes of the driver.
    pub(crate) fn keep_attaching(&self, rows: &mut Bits, driver: &str, volumes: usize) {
        for (limit, limited) in self.volume_limits.get(driver).into_iter().flatten() {
            if (*limit as usize) < volumes {
                rows.remove_all(limited);
            }
        }
    }

    /// The most volumes of the driver that any of these rows can attach, where all have a limit.
    pub(crate) fn most_volumes(&self, rows: &Bits, driver: &str) -> Option<u32> {
        let limits = self.volume_limits.get(driver)?;
        let mut unlimited = rows.clone();
        for limited in limits.values() {
            unlimited.remove_all(limited);
        }
        let most = limits.iter().rev().find(|(_, limited)| limited.meets(rows));
        most.map(|(limit, _)| *limit).filter(|_| unlimited.is_empty())
    }

    /// How many values of its key the rule admits of those that the types of these rows list.
    pub(crate) fn distinct_values(&self, rows: &Bits, rule: Rule, algebra: &mut Algebra) -> u32 {
        let with_key = self.rules.get(&algebra.key_of(rule));
        let alive = with_key.into_iter().flat_map(|with_key| &with_key.rules);
        let admitted: Vec<_> = alive
            .filter(|(_, with_rule)| with_rule.meets(rows))
            .map(|(own, _)| algebra.both(*own, rule))
            .collect();
        let listed = admitted.iter().filter_map(|both| algebra.requirement(*both).listed());
        crate::algebra::id(listed.flatten().collect::<FxHashSet<_>>().len())
    }

    /// Instance types with the lowest price at which they can be bought under these requirements: the
    /// cheapest first, equal prices by name.
    pub(crate) fn by_price(&mut self, set: SetId, algebra: &mut Algebra) -> Arc<[(Price, u32)]> {
        if let Some(known) = self.prices.get(&set) {
            return Arc::clone(known);
        }
        let mut cheapest = vec![Price::MAX; self.pool.instance_types.len()];
        for (row, price) in self.rows.iter().zip(self.row_prices(set, algebra)) {
            let best = &mut cheapest[row.instance_type as usize];
            *best = price.min(*best);
        }
        let mut order: Vec<_> = cheapest
            .into_iter()
            .enumerate()
            .map(|(at, price)| (price, crate::algebra::id(at)))
            .collect();
        let name = |at: u32| self.pool.instance_types[at as usize].name();
        order.sort_by(|a, b| a.0.cmp(&b.0).then_with(|| name(a.1).cmp(name(b.1))));
        let order: Arc<[_]> = order.into();
        self.prices.insert(set, Arc::clone(&order));
        order
    }

    /// The most of a resource that any of these rows leaves to pods, and the row. Equal ones by name.
    pub(crate) fn roomiest(&self, rows: &Bits, lane: usize) -> Option<(i64, usize)> {
        let Thresholds { amounts, at_least } = &self.room[lane];
        amounts.iter().zip(at_least).rev().find_map(|(amount, with)| {
            let rows = with.iter().filter(|row| rows.contains(*row));
            Some((*amount, rows.min_by_key(|row| self.type_of(*row).name())?))
        })
    }

    pub(crate) fn type_of(&self, row: usize) -> &InstanceType {
        &self.pool.instance_types[self.rows[row].instance_type as usize]
    }

    /// The rows of an instance type, which follow each other.
    pub(crate) fn rows_of(&self, instance_type: u32) -> std::ops::Range<usize> {
        let from = self.rows.partition_point(|row| row.instance_type < instance_type);
        let behind = &self.rows[from..];
        from..from + behind.partition_point(|row| row.instance_type == instance_type)
    }

    /// What its type has, daemons and reserves included.
    pub(crate) fn capacity_of(&self, row: usize, lane: usize) -> i64 {
        self.capacity[self.rows[row].instance_type as usize][lane]
    }

    /// By row, the lowest price at which it can be bought under these requirements.
    pub(crate) fn row_prices(&self, set: SetId, algebra: &mut Algebra) -> Vec<Price> {
        let serving: Vec<bool> =
            self.shapes.iter().map(|shape| algebra.merge(set, shape.set).is_some()).collect();
        let price = |row: &Row| {
            let offered = row.offerings.iter().filter(|(shape, _)| serving[*shape as usize]);
            offered.map(|(_, price)| *price).min().unwrap_or(Price::MAX)
        };
        self.rows.iter().map(price).collect()
    }

    /// What a row leaves to pods beside daemons.
    pub(crate) fn room_of(&self, row: usize) -> &Lanes {
        &self.room_of_rows[row]
    }

    /// The instance types of these rows, as bits.
    pub(crate) fn types_of(&self, rows: &Bits) -> Bits {
        rows.iter().map(|row| self.rows[row].instance_type as usize).collect()
    }
}

impl KeyRows {
    fn insert(&mut self, rule: Rule, row: usize) {
        self.named.insert(row);
        match self.rules.iter_mut().find(|(own, _)| *own == rule) {
            Some((_, rows)) => rows.insert(row),
            None => self.rules.push((rule, [row].into_iter().collect())),
        }
    }
}

impl Thresholds {
    fn new(lane: usize, room: &[Lanes]) -> Self {
        let amount = |row: &usize| room[*row][lane];
        let mut rows: Vec<_> = (0..room.len()).collect();
        rows.sort_unstable_by_key(amount);
        let (mut amounts, mut at_least) = (Vec::new(), Vec::new());
        // From the roomiest down, so that each amount adds its own rows to those above it.
        let mut roomier = Bits::default();
        for equal in rows.chunk_by(|a, b| amount(a) == amount(b)).rev() {
            for row in equal {
                roomier.insert(*row);
            }
            amounts.push(amount(&equal[0]));
            at_least.push(roomier.clone());
        }
        amounts.reverse();
        at_least.reverse();
        Self { amounts, at_least }
    }

    fn keep(&self, rows: &mut Bits, amount: i64) {
        match self.amounts.partition_point(|least| *least < amount) {
            0 => {}
            at if at < self.amounts.len() => rows.intersect_with(&self.at_least[at]),
            _ => *rows = Bits::default(),
        }
    }
}
