#loc1 = loc("params['dense_1']['bias']")
#loc2 = loc("params['dense_1']['kernel']")
#loc3 = loc("params['dense_2']['bias']")
#loc4 = loc("params['dense_2']['kernel']")
#loc5 = loc("batch['x']")
#loc6 = loc("batch['y']")
module @jit_train_step attributes {mhlo.num_partitions = 1 : i32, mhlo.num_repli