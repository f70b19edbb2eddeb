// Upstream's side of `cargo xtask bench`: reads a problem, solves it again and again with Karpenter's own code, and prints
// one line of JSON per run. Whoever started it stops it when there are enough.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	"sigs.k8s.io/karpenter/pkg/operator/logging"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	"sigs.k8s.io/karpenter/pkg/test"
)

// Outcome is what both sides print after each run.
type Outcome struct {
	SetupSeconds float64 `json:"setup_seconds"`
	SolveSeconds float64 `json:"solve_seconds"`
	CPUSeconds   float64 `json:"cpu_seconds"`
	Claims       int     `json:"claims"`
	Price        float64 `json:"price"`
	Unplaced     int     `json:"unplaced"`
	OnNodes      int     `json:"on_nodes"`
	Allocations  uint64  `json:"allocations"`
	AllocatedMiB float64 `json:"allocated_mib"`
	PeakMiB      float64 `json:"peak_mib"`
}

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: upstream <problem.ndjson> <respect|ignore|consolidate> <runs>")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(file, task, runs string) error {
	log.SetLogger(logging.NopLogger)
	count, err := strconv.Atoi(runs)
	if err != nil {
		return fmt.Errorf("%q is not a number of runs", runs)
	}
	if task == "consolidate" {
		return consolidate(file, count)
	}
	return scheduleAll(file, task == "ignore", count)
}

func scheduleAll(file string, ignorePreferences bool, count int) error {
	problem, instanceTypes, err := readWithTypes(file)
	if err != nil {
		return err
	}
	ctx := options.ToContext(injection.WithControllerName(context.Background(), "provisioner"), test.Options())
	cluster, err := newCluster(ctx, problem, instanceTypes)
	if err != nil {
		return err
	}
	// Five workers, as in upstream's own benchmark.
	opts := []scheduling.Options{scheduling.NumConcurrentReconciles(5)}
	if ignorePreferences {
		opts = append(opts, scheduling.IgnorePreferences)
	}
	for range count {
		outcome, err := schedule(ctx, cluster, problem.Pending, instanceTypes, opts)
		if err != nil {
			return err
		}
		if err := json.NewEncoder(os.Stdout).Encode(outcome); err != nil {
			return err
		}
	}
	return nil
}

// schedule builds everything anew each time: a scheduler keeps the claims of its last run.
func schedule(
	ctx context.Context,
	cluster *knownCluster,
	pods []*corev1.Pod,
	instanceTypes []*cloudprovider.InstanceType,
	opts []scheduling.Options,
) (Outcome, error) {
	pool := nodePool()
	pools := []*v1.NodePool{pool}
	types := map[string][]*cloudprovider.InstanceType{pool.Name: instanceTypes}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)

	start := time.Now()
	nodes := cluster.state.DeepCopyNodes()
	topology, err := scheduling.NewTopology(ctx, cluster.client, cluster.state, nodes, pools, types, pods, opts...)
	if err != nil {
		return Outcome{}, fmt.Errorf("counting topology domains: %w", err)
	}
	scheduler := scheduling.NewScheduler(ctx, cluster.client, pools, cluster.state, nodes, topology, types, nil,
		events.NewRecorder(&record.FakeRecorder{}), clock.RealClock{}, nil, nil, opts...)
	setup := time.Since(start)

	start = time.Now()
	cpu := cpuSeconds()
	results, err := scheduler.Solve(ctx, pods)
	solve := time.Since(start)
	cpu = cpuSeconds() - cpu
	if err != nil {
		return Outcome{}, fmt.Errorf("solving: %w", err)
	}
	runtime.ReadMemStats(&after)

	outcome := Outcome{
		SetupSeconds: setup.Seconds(),
		SolveSeconds: solve.Seconds(),
		CPUSeconds:   cpu,
		Claims:       len(results.NewNodeClaims),
		Unplaced:     len(results.PodErrors),
		Allocations:  after.Mallocs - before.Mallocs,
		AllocatedMiB: float64(after.TotalAlloc-before.TotalAlloc) / (1 << 20),
		PeakMiB:      peakMiB(),
	}
	for _, claim := range results.NewNodeClaims {
		outcome.Price += cheapest(claim)
	}
	for _, node := range results.ExistingNodes {
		outcome.OnNodes += len(node.Pods)
	}
	return outcome, nil
}

// cheapest is what a claim costs when it is bought as cheaply as its requirements allow.
func cheapest(claim *scheduling.NodeClaim) float64 {
	lowest := math.Inf(1)
	for _, instanceType := range claim.InstanceTypeOptions {
		for _, offering := range instanceType.Offerings.Available().Compatible(claim.Requirements) {
			lowest = min(lowest, offering.Price)
		}
	}
	return lowest
}

func nodePool() *v1.NodePool {
	return test.NodePool(v1.NodePool{
		ObjectMeta: metav1.ObjectMeta{Name: "bench"},
		Spec: v1.NodePoolSpec{Limits: v1.Limits{
			corev1.ResourceCPU:    resource.MustParse("10000000"),
			corev1.ResourceMemory: resource.MustParse("10000000Gi"),
		}},
	})
}

// cpuSeconds is what all threads of this process have had of all cores.
func cpuSeconds() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
}

// peakMiB is the most memory that this process has had.
func peakMiB() float64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if rest, found := strings.CutPrefix(line, "VmHWM:"); found {
			kib, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kib / 1024
		}
	}
	return 0
}
