//! What an amount of each resource is worth.
//!
//! The cheapest mix of fractions of machines that holds all pods is a linear program. Its dual gives each resource a price,
//! such that no machine is worth more than it costs and all pods together are worth as much as possible. A pod that asks for
//! what is scarce is worth more, and a machine filled to its worth is a good one.

use super::{Problem, Realm};

#[derive(Debug)]
pub(super) struct Values {
    /// What a pod of each sort is worth, in its own realm: by even prices, then by those for just these pods.
    pub(super) sorts: [Vec<f64>; 2],
    /// What a unit of each resource is worth in each realm, by even prices.
    pub(super) resources: Vec<Vec<f64>>,
}

impl Problem {
    /// Nothing where some sort fits no offer of its own realm.
    pub(super) fn values(&self) -> Option<Values> {
        let realms = || self.realms.iter().enumerate();
        let exact: Vec<_> = realms().map(|(at, realm)| realm.prices(&self.demand(at))).collect();
        let even: Vec<_> =
            realms().map(|(at, realm)| realm.even_prices(&self.demand(at))).collect();
        Some(Values { sorts: [self.worths(&even)?, self.worths(&exact)?], resources: even })
    }

    fn worths(&self, resources: &[Vec<f64>]) -> Option<Vec<f64>> {
        let mut sorts = Vec::with_capacity(self.sorts.len());
        for sort in &self.sorts {
            let own = *sort.realms.first()?;
            let realm = &self.realms[own];
            let fits = |room: &[f64]| sort.requests.iter().zip(room).all(|(asks, has)| asks <= has);
            if !realm.offers.iter().any(|offer| fits(&offer.room)) {
                return None;
            }
            let prices = sort.requests.iter().zip(&resources[own]);
            let worth: f64 = prices.map(|(asks, price)| asks * price).sum();
            // Where a resource is plenty it costs nothing, and a pod that asks for nothing else is still to be placed.
            let cheapest = realm.offers.iter().filter(|offer| fits(&offer.room));
            let share =
                cheapest.map(|offer| offer.price * largest_share(&sort.requests, &offer.room));
            let share = share.fold(f64::INFINITY, f64::min);
            sorts.push(worth.max(share * LEAST));
        }
        Some(sorts)
    }

    /// What the sorts that may go to this realm ask for together.
    fn demand(&self, realm: usize) -> Vec<f64> {
        let lanes = self.sorts.first().map_or(0, |sort| sort.requests.len());
        let mut demand = vec![0.0; lanes];
        for sort in self.sorts.iter().filter(|sort| sort.realms.contains(&realm)) {
            for (total, asks) in demand.iter_mut().zip(&sort.requests) {
                *total += asks * f64::from(sort.count);
            }
        }
        demand
    }
}

/// A pod is worth at least this part of the share of a machine that it takes.
const LEAST: f64 = 0.05;

fn largest_share(requests: &[f64], room: &[f64]) -> f64 {
    let shares = requests.iter().zip(room).filter(|(asks, _)| **asks > 0.0);
    shares.map(|(asks, has)| asks / has).fold(0.0, f64::max)
}

/// How much more of a resource is asked for, to see what it would be worth.
const MORE: f64 = 1.3;

impl Realm {
    /// The mean of the prices for this demand and for some near it. Where two resources are nearly as scarce, exact prices make
    /// one of them worthless, and pods that are rich in it would be left for the end.
    fn even_prices(&self, demand: &[f64]) -> Vec<f64> {
        let mut known = vec![self.prices(demand)];
        for lane in 0..demand.len() {
            let mut more = demand.to_vec();
            more[lane] *= MORE;
            let prices = self.prices(&more);
            let is_near = |other: &Vec<f64>| {
                other.iter().zip(&prices).all(|(one, other)| (one - other).abs() <= TINY * other)
            };
            if !known.iter().any(is_near) {
                known.push(prices);
            }
        }
        let mean =
            |lane: usize| known.iter().map(|prices| prices[lane]).sum::<f64>() / known.len() as f64;
        (0..demand.len()).map(mean).collect()
    }

    /// Maximises `demand · prices`, where no offer's room is worth more than it costs. By the simplex method: all prices zero
    /// is where it begins, and each step raises one.
    fn prices(&self, demand: &[f64]) -> Vec<f64> {
        // Amounts differ by nine orders of magnitude, so each is counted in parts of the largest machine.
        let scale: Vec<f64> = (0..demand.len())
            .map(|lane| {
                let largest = self.offers.iter().map(|offer| offer.room[lane]).fold(0.0, f64::max);
                if largest > 0.0 { largest } else { 1.0 }
            })
            .collect();
        let mut tableau = Tableau::new(self, demand, &scale);
        for _ in 0..STEPS {
            if !tableau.step() {
                break;
            }
        }
        tableau.solution().iter().zip(&scale).map(|(price, scale)| price / scale).collect()
    }
}

/// Far more than it takes with a handful of resources; there only in case rounding leads in a circle.
const STEPS: usize = 100;
const TINY: f64 = 1e-9;

/// A row per offer: what of its price is not accounted for yet. A column per resource that has no price yet.
struct Tableau {
    rows: Vec<Vec<f64>>,
    left: Vec<f64>,
    goal: Vec<f64>,
    /// What a row or a column stands for: a resource below `lanes`, else an offer's slack.
    row_names: Vec<usize>,
    column_names: Vec<usize>,
    lanes: usize,
}

impl Tableau {
    fn new(realm: &Realm, demand: &[f64], scale: &[f64]) -> Self {
        let scaled = |amounts: &[f64]| -> Vec<f64> {
            amounts.iter().zip(scale).map(|(amount, scale)| amount / scale).collect()
        };
        let lanes = demand.len();
        Self {
            rows: realm.offers.iter().map(|offer| scaled(&offer.room)).collect(),
            left: realm.offers.iter().map(|offer| offer.price).collect(),
            goal: scaled(demand),
            row_names: (lanes..lanes + realm.offers.len()).collect(),
            column_names: (0..lanes).collect(),
            lanes,
        }
    }

    /// Whether there was something to gain.
    fn step(&mut self) -> bool {
        let gains = self.goal.iter().enumerate().filter(|(_, gain)| **gain > TINY);
        let Some((column, _)) = gains.max_by(|a, b| a.1.total_cmp(b.1)) else { return false };
        let bounds = self.rows.iter().zip(&self.left).enumerate();
        let bounds = bounds.filter(|(_, (row, _))| row[column] > TINY);
        let tightest = bounds
            .map(|(at, (row, left))| (at, left / row[column]))
            .min_by(|a, b| a.1.total_cmp(&b.1));
        let Some((row, _)) = tightest else {
            // No offer has any of it, so no price would be too high.
            self.goal[column] = 0.0;
            return true;
        };
        self.pivot(row, column);
        true
    }

    /// The row's slack is used up by raising the column.
    fn pivot(&mut self, row: usize, column: usize) {
        let by = self.rows[row][column];
        let mut pivot = std::mem::take(&mut self.rows[row]);
        for cell in &mut pivot {
            *cell /= by;
        }
        pivot[column] = 1.0 / by;
        let left = self.left[row] / by;
        for (at, cells) in self.rows.iter_mut().enumerate() {
            if at != row {
                let factor = cells[column];
                subtract(cells, &pivot, factor, column);
                self.left[at] -= factor * left;
            }
        }
        let factor = self.goal[column];
        subtract(&mut self.goal, &pivot, factor, column);
        self.left[row] = left;
        self.rows[row] = pivot;
        std::mem::swap(&mut self.row_names[row], &mut self.column_names[column]);
    }

    fn solution(&self) -> Vec<f64> {
        let mut prices = vec![0.0; self.lanes];
        for (name, left) in self.row_names.iter().zip(&self.left) {
            if *name < self.lanes {
                prices[*name] = left.max(0.0);
            }
        }
        prices
    }
}

fn subtract(cells: &mut [f64], pivot: &[f64], factor: f64, column: usize) {
    for (at, (cell, pivot)) in cells.iter_mut().zip(pivot).enumerate() {
        if at == column {
            *cell = -factor * pivot;
        } else {
            *cell -= factor * pivot;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Offer;
    use super::*;

    fn realm(offers: &[(&[f64], f64)]) -> Realm {
        let offers =
            offers.iter().map(|(room, price)| Offer { room: room.to_vec(), price: *price });
        Realm { offers: offers.collect() }
    }

    fn close(one: &[f64], other: &[f64]) -> bool {
        one.iter().zip(other).all(|(one, other)| (one - other).abs() < 1e-9)
    }

    #[test]
    fn resources_are_worth_what_machines_cost() {
        let cores_and_memory = realm(&[(&[2.0, 4.0], 2.0), (&[2.0, 8.0], 3.0)]);
        for (demand, expect) in [
            // Only cores are asked for: the cheapest machine by cores sets their price.
            ([10.0, 0.0], [1.0, 0.0]),
            ([0.0, 10.0], [0.0, 0.375]),
            // Both kinds of machine are needed, and each is worth just its price.
            ([10.0, 30.0], [0.5, 0.25]),
            ([0.0, 0.0], [0.0, 0.0]),
        ] {
            let prices = cores_and_memory.prices(&demand);
            assert!(close(&prices, &expect), "{demand:?}: {prices:?}");
        }
    }

    #[test]
    fn what_is_nearly_scarce_is_worth_something_by_even_prices() {
        let one = realm(&[(&[2.0, 4.0], 2.0), (&[4.0, 8.0], 4.0)]);
        assert!(close(&one.prices(&[100.0, 199.0]), &[1.0, 0.0]));
        assert!(close(&one.even_prices(&[100.0, 199.0]), &[0.5, 0.25]));
        assert!(close(&one.even_prices(&[100.0, 100.0]), &[1.0, 0.0]), "memory is plenty");
    }

    #[test]
    fn what_no_machine_has_has_no_price() {
        assert_eq!(realm(&[(&[2.0, 0.0], 2.0)]).prices(&[1.0, 1.0]), [1.0, 0.0]);
        assert_eq!(realm(&[]).prices(&[1.0]), [0.0]);
    }
}
