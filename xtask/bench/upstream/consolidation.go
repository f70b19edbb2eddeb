package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/fake"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	"sigs.k8s.io/karpenter/pkg/test"
)

// PassOutcome is what both sides print after each pass.
type PassOutcome struct {
	// Gathering candidates.
	SetupSeconds float64 `json:"setup_seconds"`
	Seconds      float64 `json:"seconds"`
	CPUSeconds   float64 `json:"cpu_seconds"`
	Candidates   int     `json:"candidates"`
	Commands     int     `json:"commands"`
	AllocatedMiB float64 `json:"allocated_mib"`
	PeakMiB      float64 `json:"peak_mib"`
}

// approveAll stands in for the validation that waits for 15 seconds.
type approveAll struct{}

func (approveAll) Validate(_ context.Context, command disruption.Command, _ time.Duration) (disruption.Command, error) {
	return command, nil
}

// consolidate looks at every node by itself, again and again.
func consolidate(file string, runs int) error {
	// It would give up after three minutes, wherever it is by then.
	disruption.SingleNodeConsolidationTimeoutDuration = 24 * time.Hour
	problem, instanceTypes, err := readWithTypes(file)
	if err != nil {
		return err
	}
	enabled := true
	ctx := options.ToContext(injection.WithControllerName(context.Background(), "disruption"), test.Options(test.OptionsFields{
		FeatureGates: test.FeatureGates{SpotToSpotConsolidation: &enabled},
	}))
	cluster, err := newCluster(ctx, problem, instanceTypes)
	if err != nil {
		return err
	}
	if err := cluster.client.Create(ctx, consolidatedPool()); err != nil {
		return fmt.Errorf("adding the pool: %w", err)
	}
	for range runs {
		outcome, err := pass(ctx, cluster, instanceTypes)
		if err != nil {
			return err
		}
		if err := json.NewEncoder(os.Stdout).Encode(outcome); err != nil {
			return err
		}
	}
	return nil
}

// pass begins with a new method each time: one that found nothing does not look again.
func pass(ctx context.Context, cluster *knownCluster, instanceTypes []*cloudprovider.InstanceType) (PassOutcome, error) {
	provider := fake.NewCloudProvider()
	provider.InstanceTypes = instanceTypes
	clk := clock.RealClock{}
	recorder := events.NewRecorder(&record.FakeRecorder{})
	provisioner := provisioning.NewProvisioner(cluster.client, recorder, provider, cluster.state, clk, nil, nil)
	queue := disruption.NewQueue(cluster.client, recorder, cluster.state, clk, provisioner)
	method := disruption.NewSingleNodeConsolidation(
		disruption.MakeConsolidation(clk, cluster.state, cluster.client, provisioner, provider, recorder, queue),
		disruption.WithValidator(approveAll{}))
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)

	start := time.Now()
	candidates, err := disruption.GetCandidates(ctx, cluster.state, cluster.client, recorder, clk, provider,
		method.ShouldDisrupt, method.Class(), queue)
	if err != nil {
		return PassOutcome{}, fmt.Errorf("gathering candidates: %w", err)
	}
	budgets := map[string]int{"bench": len(candidates)}
	setup := time.Since(start)

	start = time.Now()
	cpu := cpuSeconds()
	commands, err := method.ComputeCommands(ctx, budgets, candidates...)
	seconds := time.Since(start)
	cpu = cpuSeconds() - cpu
	if err != nil {
		return PassOutcome{}, fmt.Errorf("looking at every node: %w", err)
	}
	runtime.ReadMemStats(&after)
	return PassOutcome{
		SetupSeconds: setup.Seconds(),
		Seconds:      seconds.Seconds(),
		CPUSeconds:   cpu,
		Candidates:   len(candidates),
		Commands:     len(commands),
		AllocatedMiB: float64(after.TotalAlloc-before.TotalAlloc) / (1 << 20),
		PeakMiB:      peakMiB(),
	}, nil
}

func consolidatedPool() *v1.NodePool {
	pool := nodePool()
	pool.Spec.Disruption = v1.Disruption{
		ConsolidateAfter:    v1.MustParseNillableDuration("0s"),
		ConsolidationPolicy: v1.ConsolidationPolicyWhenEmptyOrUnderutilized,
		Budgets:             []v1.Budget{{Nodes: "100%"}},
	}
	pool.StatusConditions().SetTrue(status.ConditionReady)
	for _, condition := range []string{v1.ConditionTypeNodeClassReady, v1.ConditionTypeValidationSucceeded} {
		pool.StatusConditions().SetTrue(condition)
	}
	return pool
}

// settle makes a claim one that consolidation may touch.
func settle(claim *v1.NodeClaim, node *corev1.Node) {
	for _, condition := range []string{
		v1.ConditionTypeLaunched, v1.ConditionTypeRegistered, v1.ConditionTypeInitialized, v1.ConditionTypeConsolidatable,
	} {
		claim.StatusConditions().SetTrue(condition)
	}
	node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue,
	})
}
